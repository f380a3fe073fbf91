"""Carries out the core's actions for one client over ASGI. SHELL.

Three things happen at once: the client may leave, the provider may answer, and the core may say that it is
enough (a deadline, a shutdown). One task reads from the provider and writes to the client, so a slow client
slows the provider down instead of filling memory; a second one listens for the client's leaving, because
uvicorn's `send()` silently succeeds after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Send

from agentload.gateway.failures import FailureKind
from agentload.gateway.headers import Headers
from agentload.gateway.protocol import (
    Action,
    Arrived,
    CancelUpstream,
    ClientLeft,
    EndStream,
    FailStream,
    ForwardData,
    ForwardHeaders,
    Record,
    Respond,
    StartUpstream,
    UpstreamFailed,
)
from agentload.gateway.upstream import UpstreamEvent

if TYPE_CHECKING:
    from agentload.gateway.dialects import Dialect
    from agentload.gateway.driver import Driver

LOG = logging.getLogger("agentload.gateway")
LAST_WORDS_S = 10.0
"""How long a client that does not read may take to take what is left of its answer."""


class Exchange:
    """One client request on the wire."""

    def __init__(self, driver: Driver, dialect: Dialect, receive: Receive, send: Send) -> None:
        self.request_id = driver.next_id()
        self._dialect = dialect
        self._driver = driver
        self._receive = receive
        self._send = send
        self._messages: deque[Message] = deque()
        self._start: StartUpstream | None = None
        self._ended = False
        self.unread = False
        """The client has not taken the end of its answer: its connection is of no use any more."""
        self._news = asyncio.Event()
        self._call: asyncio.Timeout | None = None

    def put(self, action: Action) -> None:
        """Take an action of the core's. Never waits: the core may speak up in the middle of anything."""
        match action:
            case StartUpstream():
                self._start = action
            case CancelUpstream():
                self._interrupt()
            case Record():
                self._ended = True
            case _:
                self._messages.extend(messages(action))
        self._news.set()

    async def run(self, headers: Headers, body: bytes) -> None:
        """Tell the core of the request, and do what it says until the request has ended."""
        self._driver.attach(self)
        watcher = asyncio.create_task(self._watch_client())
        try:
            self._driver.feed(Arrived(self.request_id, headers, body, self._dialect))
            await self._obey()
        except TimeoutError:
            LOG.warning("request=%d: the client does not read its answer", self.request_id)
            self.unread = True
        except asyncio.CancelledError:  # the server ends, and has waited long enough for the client
            if not self._ended:
                raise
            self.unread = True
        finally:
            watcher.cancel()
            if not self._ended:  # the server gives up on us
                self._driver.feed(ClientLeft(self.request_id))
            self._driver.detach(self)

    async def _obey(self) -> None:
        while True:
            self._news.clear()
            if self._messages:
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._flush()
            if self._start is not None:
                start, self._start = self._start, None
                await self._call_upstream(start)
            elif self._ended:
                return
            else:
                await self._news.wait()

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._driver.feed(ClientLeft(self.request_id))

    # ----------------------------------------------------------------- the provider's side

    async def _call_upstream(self, start: StartUpstream) -> None:
        self._call = call = asyncio.timeout(None)
        try:
            async with call:
                await self._driver.upstream.run(
                    self.request_id, start.call, start.connect_timeout_ns, self._on_upstream
                )
        except Exception as error:
            if isinstance(error, TimeoutError) and call.expired():
                return  # the core said CancelUpstream, and has said what follows from it
            LOG.exception("request=%d: the call to the provider failed in an unforeseen way", self.request_id)
            self._driver.feed(UpstreamFailed(self.request_id, FailureKind.BROKEN))
        finally:
            self._call = None

    async def _on_upstream(self, event: UpstreamEvent) -> None:
        self._driver.feed(event)
        await self._flush()

    def _interrupt(self) -> None:
        self._start = None
        if self._call is not None:
            self._call.reschedule(asyncio.get_running_loop().time())

    # ----------------------------------------------------------------- the client's side

    async def _flush(self) -> None:
        """Write what is to be written.

        A message is taken off the list only once it is written: being interrupted while a slow client keeps
        us waiting must not lose a piece of its answer.
        """
        while self._messages:
            await self._send(self._messages[0])
            self._messages.popleft()


def messages(action: Action) -> list[Message]:
    """The ASGI messages that say to the client what an action wants it to be told."""
    match action:
        case ForwardData():
            return [_body(action.data, more=True)] if action.data else []
        case ForwardHeaders():
            return [_head(action.status, action.headers)]
        case Respond():
            return [_head(action.status, action.headers), _body(action.body, more=False)]
        case FailStream():
            return [_body(action.data, more=False)]
        case EndStream():
            return [_body(b"", more=False)]
        case _:
            raise AssertionError(f"not for the client: {action}")


def _head(status: int, headers: Headers) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
