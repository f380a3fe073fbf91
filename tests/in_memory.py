"""The real gateway and the real provider, ASGI application to ASGI application, without sockets.

Messages take a fixed time from one end to the other, streams are streams (a message at a time), and whoever
closes a connection is noticed at the other end: what a transport that collects bodies would hide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from random import Random
from typing import Any, Self

from starlette.applications import Starlette

from agentload import behaviours, targets
from agentload.client.logical import AttemptResult, AttemptStart, LogicalRequest
from agentload.client.wire import Ending, ReplyReader, chat_body, idempotency_key, marker_of
from agentload.drivers.simulated.network import Timing
from agentload.gateway.app import build_app
from agentload.gateway.core import GatewayCore
from agentload.gateway.envelope import UpstreamCall
from agentload.gateway.failures import FailureKind
from agentload.gateway.protocol import UpstreamData, UpstreamEnded, UpstreamFailed, UpstreamHeaders
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.upstream import Sink
from agentload.model import NS, Arrival, Outcome, Plan, Profile, RequestRecord
from agentload.plan import ClosedLoops, ClosedUser
from fake_provider.app import build
from fake_provider.core import Provider
from fake_provider.host import Host
from fake_provider.ledger import Entry
from fake_provider.transport import PEER, Peer

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
CLOSED: Message = {"type": "closed"}


class Connection:
    """One request to an application, and its answer. `close` is the client's leaving."""

    def __init__(self, app: App, scope: Message, body: bytes, one_way_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._one_way_s = one_way_s
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._requests: asyncio.Queue[Message] = asyncio.Queue()
        self._requests.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self._task: asyncio.Task[None] | None = None
        self.closing = False
        self.peer = Peer(self)  # type: ignore[arg-type]  # as much of a transport as a Peer asks for
        scope[PEER] = self.peer
        self._later(self._begin, app, scope)

    async def next(self) -> Message:
        """The next message of the answer, or CLOSED."""
        return await self._inbox.get()

    def leave(self) -> None:
        """The client closes the connection."""
        self._later(self._lost)

    # ----------------------------------------------------------------- the application's side

    def _begin(self, app: App, scope: Message) -> None:
        self._task = self._loop.create_task(app(scope, self._requests.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: Message) -> None:
        if not self.closing:
            self._later(self._inbox.put_nowait, message)

    def _lost(self) -> None:
        self._requests.put_nowait({"type": "http.disconnect"})
        self.closing = True
        self.peer.lost()

    # ----------------------------------------------------------------- what a Peer sees of a transport

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._later(self._inbox.put_nowait, CLOSED)
        self._loop.call_soon(self._lost)

    abort = close

    def get_extra_info(self, _name: str) -> None:
        return None

    def _later(self, callback: Callable[..., object], *arguments: object) -> None:
        self._loop.call_later(self._one_way_s, callback, *arguments)


def scope_of(path: str, headers: list[tuple[bytes, bytes]]) -> Message:
    """An ASGI scope of a POST."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


class InMemoryUpstream:
    """What `gateway.upstream.Upstream` is to the gateway, without aiohttp."""

    def __init__(self, provider: App, one_way_s: float) -> None:
        self._provider = provider
        self._one_way_s = one_way_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(self, request_id: int, call: UpstreamCall, _connect_ns: int, sink: Sink) -> None:
        """One call, told to `sink` as it happens. Cancelling it closes the connection at once."""
        headers = [(b"content-type", b"application/json"), *call.headers]
        scope = scope_of(call.dialect.path, headers)
        connection = Connection(self._provider, scope, call.body, self._one_way_s)
        complete = False
        try:
            message = await connection.next()
            if message is CLOSED:
                complete = True
                return await sink(UpstreamFailed(request_id, FailureKind.BROKEN))
            await sink(UpstreamHeaders(request_id, message["status"], tuple(message["headers"])))
            while not complete:
                message = await connection.next()
                complete = message is CLOSED or not message.get("more_body")
                if message.get("body"):
                    await sink(UpstreamData(request_id, message["body"]))
            return await sink(UpstreamEnded(request_id, clean=message is not CLOSED))
        finally:
            if not complete:
                connection.leave()


class Stack:
    """The whole of a live run but its sockets and processes, in one loop."""

    def __init__(self, profile: Profile, plan: Plan, run: int, timing: Timing) -> None:
        self.profile, self.plan, self.run_id = profile, plan, run
        self.one_way_s = timing.one_way_ns / 1e9
        self.records: list[RequestRecord] = []
        self.provider = Provider(profile.provider, run=run)
        host = Host(self.provider)
        host.rearm()
        upstream = InMemoryUpstream(build(host), timing.upstream_one_way_ns / 1e9)  # type: ignore[arg-type]
        self.core = GatewayCore(profile.gateway, GatewaySettings(), Random(f"{plan.seed}/gateway"))
        self.gateway: Starlette = build_app(profile.gateway, self.core, upstream)  # type: ignore[arg-type]
        self._target = targets.bundled("http://127.0.0.1:8080")
        self._places = {tenant.name: place for place, tenant in enumerate(profile.tenants)}
        self._behaviours = {t.name: behaviours.make(t.client) for t in profile.tenants}
        self._loops = ClosedLoops(profile, plan)
        self._horizon_ns = profile.duration_ns + round(profile.drain_s * NS)
        self._loop = asyncio.get_running_loop()

    async def play(self) -> list[RequestRecord]:
        """Every arrival at its due time, every closed-loop user; the records as they ended."""
        flows = [self._loop.create_task(self._open_loop(arrival)) for arrival in self.plan.arrivals]
        flows += [self._loop.create_task(self._play(user)) for user in self._loops.users]
        await asyncio.gather(*flows)
        await asyncio.sleep(0.1)
        return self.records

    @property
    def ledger(self) -> list[Entry]:
        """What the provider wrote down."""
        return self.provider.ledger.entries

    async def _open_loop(self, arrival: Arrival) -> None:
        await self._until(arrival.due_ns)
        await self._serve(arrival)

    async def _play(self, user: ClosedUser) -> None:
        job, due_ns = 0, self._loops.first_due_ns(user)
        while due_ns is not None:
            await self._until(due_ns)
            last = await self._serve(self._loops.arrival(user, job, due_ns))
            answered = last.outcome is Outcome.ANSWERED
            due_ns, job = self._loops.next_due_ns(user, last.ended_ns, answered=answered), job + 1

    async def _serve(self, arrival: Arrival) -> RequestRecord:
        behaviour = self._behaviours[arrival.tenant]
        request = LogicalRequest(arrival, behaviour, self.plan.seed, self._horizon_ns)
        while True:
            result = await self._attempt(arrival, request.start(self._now_ns()))
            record, next_due_ns = request.ended(self._now_ns(), result)
            self.records.append(record)
            if next_due_ns is None:
                return record
            await self._until(next_due_ns)

    async def _attempt(self, arrival: Arrival, start: AttemptStart) -> AttemptResult:
        sent_ns = self._now_ns()
        marker = marker_of(self.run_id, self._places[arrival.tenant], arrival, start.number)
        said = start.number if start.said_number is None else start.said_number
        named = self._target.headers(arrival, said, sent_ns)
        if start.sends_key:
            named.append(("Idempotency-Key", idempotency_key(self.run_id, arrival)))
        headers = [(name.lower().encode(), value.encode()) for name, value in named]
        body = chat_body(arrival.job, marker, arrival.model or self._target.model)
        scope = scope_of("/v1/chat/completions", headers)
        connection = Connection(self.gateway, scope, body, self.one_way_s)  # type: ignore[arg-type]
        reader = ReplyReader(arrival.job.stream, arrival.seq)
        last_ns = min(start.timeout_at_ns, self._horizon_ns)
        try:
            async with asyncio.timeout_at(last_ns / 1e9):
                await self._read(connection, reader)
        except TimeoutError:
            connection.leave()
            if last_ns == self._horizon_ns:
                return reader.result(Ending.OPEN, sent_ns)
            return reader.result(Ending.LEFT, sent_ns, transport_error="timeout")
        return reader.result(Ending.COMPLETE, sent_ns)

    async def _read(self, connection: Connection, reader: ReplyReader) -> None:
        while not reader.is_whole:
            message = await connection.next()
            if message["type"] == "http.response.start":
                reader.head(message["status"], message["headers"], self._now_ns() / 1e9)
                continue
            if message["body"]:
                reader.feed(message["body"], self._now_ns())
            if not message.get("more_body"):
                return

    async def _until(self, due_ns: int) -> None:
        delay_ns = due_ns - self._now_ns()
        if delay_ns > 0:
            await asyncio.sleep(delay_ns / 1e9)

    def _now_ns(self) -> int:
        return round(self._loop.time() * 1e9)
