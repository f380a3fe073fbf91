"""Responses in the background: begun by one request, asked after by others, cancelled by a third.

Source: https://platform.openai.com/docs/guides/background. Only these are kept, for ten minutes after their
end, and `MOST_KEPT` of them at most: then the one that ended first is forgotten, and where none has, no more
are begun. A question is no call: no limit holds for it and the ledger does not list it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fake_provider import openai_common
from fake_provider.budget import NS
from fake_provider.call import Call, Refusal, Reset, Then
from fake_provider.endpoint import BUG, SHUTDOWN, Exchange, read_body
from fake_provider.host import Host
from fake_provider.ledger import Ending
from fake_provider.openai_responses import OpenAIResponses, in_background
from fake_provider.transport import PEER, Peer
from fake_provider.wire import RequestHeaders, Unreadable, content_type

MOST_KEPT = 10_000
KEPT_NS = 600 * NS
"""After its end."""


class Responses:
    """`/v1/responses` and what lies below it."""

    def __init__(self, host: Host, wire: OpenAIResponses) -> None:
        self._host = host
        self._wire = wire
        self._open: dict[str, Background] = {}
        self._ended: OrderedDict[str, Background] = OrderedDict()
        """By id, as all are; what ended first comes first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is not None and not in_background(body):
            await Exchange(self._host, self._wire, scope, send).run(body)
        elif body is not None:
            response = await self._begin(dict(scope["headers"]), body, cast(Peer, scope[PEER]))
            if response is not None:
                await response(scope, receive, send)

    async def one(self, request: Request) -> Response:
        """`GET /v1/responses/{id}`: as it stands."""
        kept = self._named(request)
        return self._unknown(request) if kept is None else self._answer(kept.call, kept.body())

    async def cancel(self, request: Request) -> Response:
        """`POST /v1/responses/{id}/cancel`: one that has ended stays as it ended."""
        kept = self._named(request)
        if kept is None:
            return self._unknown(request)
        kept.cancel()
        return self._answer(kept.call, kept.body())

    async def _begin(self, headers: RequestHeaders, body: bytes, peer: Peer) -> Response | None:
        """None: the connection was reset."""
        host, wire, now_ns = self._host, self._wire, self._host.clock_ns()
        try:
            request = wire.parse(headers, body)
        except Unreadable as wrong:
            call = host.provider.invalid(now_ns, wrong.request, wrong.status)
            return self._answer(call, wrong.body, wrong.status, headers)
        if not self._room(now_ns):
            call = host.provider.invalid(now_ns, request, 503)
            return self._answer(call, openai_common.overloaded_body(), 503, headers)
        decision = host.provider.arrive(now_ns, request)
        call = decision.call
        if isinstance(decision, Reset):
            await peer.reset()
            return None
        limits = dict(host.provider.headers(now_ns, call))
        if isinstance(decision, Refusal):
            fields, text = wire.refusal(decision)
            return self._answer(call, text, decision.status, headers, {**limits, **dict(fields)})
        answer = self._answer(call, wire.kept(call, "queued"), 200, headers, limits)
        call.entry.status = 200
        name = wire.name(call)
        self._open[name] = Background(host, wire, call, lambda: self._on_end(name))
        return answer

    def _named(self, request: Request) -> Background | None:
        name = cast(str, request.path_params["name"])
        return self._open.get(name) or self._ended.get(name)

    def _on_end(self, name: str) -> None:
        self._ended[name] = self._open.pop(name)

    def _room(self, now_ns: int) -> bool:
        """Forget what has been kept long enough, or must go; whether one more can be begun."""
        while self._ended:
            full = len(self._open) + len(self._ended) >= MOST_KEPT
            if not full and next(iter(self._ended.values())).ended_ns >= now_ns - KEPT_NS:
                break
            self._ended.popitem(last=False)
        return len(self._open) < MOST_KEPT

    def _answer(
        self,
        call: Call,
        body: bytes,
        status: int = 200,
        headers: RequestHeaders | None = None,
        fields: dict[bytes, bytes] | None = None,
    ) -> Response:
        response = Response(body, status, media_type=content_type(body)[1].decode())
        own = self._wire.headers(call, self._host.clock_ns(), headers or {})
        response.raw_headers += [*own, *(fields or {}).items()]
        return response

    def _unknown(self, request: Request) -> Response:
        text = f"Response with id '{request.path_params['name']:.100}' not found."
        body = openai_common.error_body(text, "invalid_request_error")
        return Response(body, 404, media_type="application/json")


class Background:
    """One response on its way. Nobody is connected to it, so nobody who leaves ends it."""

    def __init__(self, host: Host, wire: OpenAIResponses, call: Call, on_end: Callable[[], None]) -> None:
        self.call = call
        self.ended_ns = 0
        self._on_end = on_end
        self._host = host
        self._wire = wire
        self._whole: bytes | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def body(self) -> bytes:
        """The response as it stands."""
        if self._whole is not None:
            return self._whole
        return self._wire.kept(self.call, "queued" if self.call.timing is None else "in_progress")

    def cancel(self) -> None:
        """End it, if it has not ended."""
        self._end("cancelled", Ending.CANCELLED, None)

    def wake(self) -> None:
        """Something has changed: it may be in service now, or a fault may hold it back."""
        self._changed.set()

    async def _run(self) -> None:
        host, call = self._host, self.call
        host.peers[call.number] = self
        try:
            while self._whole is None:
                if host.stopping:
                    self._end("failed", Ending.CUT, SHUTDOWN)
                else:
                    await self._next()
        finally:
            del host.peers[call.number]
            self._end("failed", Ending.CUT, BUG)

    async def _next(self) -> None:
        """Waits for the end of the answer, or notes it if it is due."""
        provider, call, now_ns = self._host.provider, self.call, self._host.clock_ns()
        if call.timing is None:
            return await self._wait(None)
        step = provider.next_step(call)
        if step.due_ns is None or step.due_ns > now_ns:
            return await self._wait(step.due_ns)
        whole = self._wire.kept(call, "completed" if step.then is Then.COMPLETE else "failed")
        self._host.wake(provider.deliver(now_ns, call, step))
        self._keep(whole)
        return None

    async def _wait(self, until_ns: int | None) -> None:
        """Until something changes, or then."""
        left_s = None if until_ns is None else max(0.0, (until_ns - self._host.clock_ns()) / NS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), left_s)
        self._changed.clear()

    def _end(self, status: str, ending: Ending, reason: str | None) -> None:
        if self._whole is None:
            self._keep(self._wire.kept(self.call, status))
        self._host.wake(self._host.provider.ended(self._host.clock_ns(), self.call, ending, reason))

    def _keep(self, whole: bytes) -> None:
        self._whole, self.ended_ns = whole, self._host.clock_ns()
        self._on_end()
        self.wake()
