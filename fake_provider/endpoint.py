"""The hot path: one request and its answer over bare ASGI. It only waits and sends; the core decides."""

from __future__ import annotations

import asyncio
from typing import cast

from starlette.types import Receive, Scope, Send

from fake_provider.budget import Headers
from fake_provider.call import Call, Refusal, Reset, Step, Then
from fake_provider.host import Host
from fake_provider.ledger import Ending
from fake_provider.transport import BEGIN, PEER, Begin, Peer
from fake_provider.wire import MAX_BODY_BYTES, Frames, RequestHeaders, Unreadable, Wire, content_type

SHUTDOWN = "shutdown"
"""The reason in the ledger of calls that the end of this program cut."""
BUG = "bug"
"""The reason in the ledger of calls that a fault of this program cut."""
_JSON = (b"content-type", b"application/json")
_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Endpoint:
    """The ASGI application behind one path, in one wire format."""

    def __init__(self, host: Host, wire: Wire) -> None:
        self.host = host
        self.wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is not None:
            await Exchange(self.host, self.wire, scope, send).run(body)


async def read_body(receive: Receive) -> bytes | None:
    """The whole request body; None when the client left before that. Reading stops when it is too big."""
    message = await receive()
    body = cast(bytes, message.get("body", b""))
    while message["type"] == "http.request" and message.get("more_body") and len(body) <= MAX_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
    return None if message["type"] == "http.disconnect" else body


class Exchange:
    """One request on its way."""

    __slots__ = ("_begin", "_frames", "_headers", "_host", "_limits", "_peer", "_send", "_waited", "_wire")

    def __init__(self, host: Host, wire: Wire, scope: Scope, send: Send) -> None:
        self._host = host
        self._wire = wire
        self._send = send
        self._peer = cast(Peer, scope[PEER])
        self._begin = cast("Begin | None", scope.get(BEGIN))
        self._headers: RequestHeaders = dict(scope["headers"])
        self._limits: Headers = []
        self._frames: Frames | None = None
        self._waited = False

    async def run(self, body: bytes) -> None:
        """Reads the request, asks the core, and does as it says."""
        provider, now_ns = self._host.provider, self._host.clock_ns()
        try:
            request = self._wire.parse(self._headers, body)
        except Unreadable as wrong:
            call = provider.invalid(now_ns, wrong.request, wrong.status)
            return await self._reply(call, wrong.status, self._wire.invalid(call, wrong))
        decision = provider.arrive(now_ns, request)
        call = decision.call
        if isinstance(decision, Reset):
            return await self._peer.reset()
        # As the limits stand at admission, which is when real providers look.
        self._limits = provider.headers(now_ns, call)
        if isinstance(decision, Refusal):
            fields, text = self._wire.refusal(decision)
            return await self._reply(call, decision.status, text, fields)
        return await self._serve(call)

    async def _serve(self, call: Call) -> None:
        """An admitted call, to its end."""
        self._host.peers[call.number] = self._peer
        try:
            while call.timing is None and not self._over(call):
                await self._peer.wait(None)
            if call.entry.ending is Ending.OPEN and call.request.stream:
                await self._open_stream(call)
            while call.entry.ending is Ending.OPEN and not self._over(call):
                await self._next(call)
        finally:
            del self._host.peers[call.number]
            # Only after a fault of this program is it still open; a slot must not be taken for ever.
            self._end(call, Ending.CUT, BUG)
        if call.entry.ending is Ending.CANCELLED or call.entry.reason == SHUTDOWN:
            await self._peer.close()

    async def _next(self, call: Call) -> None:
        """Waits for the next step of the answer, or sends it if it is due."""
        host, step = self._host, self._host.provider.next_step(call)
        now_ns = host.clock_ns()
        if step.due_ns is None or step.due_ns > now_ns:
            self._waited = True
            return await self._peer.wait(step.due_ns)
        host.lateness.record(now_ns - step.due_ns)
        # Encoded first: what cannot be encoded must not be recorded as answered.
        data = self._encode(call, step)
        host.wake(host.provider.deliver(now_ns, call, step))
        if self._frames is None:
            return await self._send_whole(call, step, data)
        await self._send_piece(step, data)
        if step.then is Then.CONTINUE and not self._waited:
            # A stream that has to catch up lets others run, too.
            await asyncio.sleep(0)
        self._waited = False
        return None

    def _encode(self, call: Call, step: Step) -> bytes:
        if self._frames is None:
            return self._wire.whole(call)
        piece = self._frames.piece(step.first, step.last)
        if step.then is Then.COMPLETE:
            return piece + self._frames.tail()
        return piece + self._frames.error() if step.then is Then.ERROR else piece

    async def _send_whole(self, call: Call, step: Step, body: bytes) -> None:
        if step.then is Then.RESET:
            return await self._peer.reset()
        if step.then is Then.COMPLETE:
            return await self._reply(call, 200, body)
        part = body[: min(len(body) - 1, len(body) * step.last // call.output_tokens)]
        if step.then is Then.END:
            return await self._reply(call, 200, part)
        await self._start(200, [_JSON, *self._fields(call)], len(body))
        await self._body(part, more=True)
        return await self._peer.close()

    async def _send_piece(self, step: Step, piece: bytes) -> None:
        ends = step.then in (Then.COMPLETE, Then.ERROR, Then.END)
        await self._body(piece, more=not ends)
        if step.then is Then.CLOSE:
            await self._peer.close()
        elif step.then is Then.RESET:
            await self._peer.reset()

    async def _open_stream(self, call: Call) -> None:
        self._frames = self._wire.frames(call)
        await self._start(200, [*_STREAM, *self._fields(call)], None)

    def _over(self, call: Call) -> bool:
        """Whether nobody is to be answered any more; if so, the core has been told."""
        if self._peer.gone:
            self._end(call, Ending.CANCELLED, None)
            return True
        if self._host.stopping:
            self._end(call, Ending.CUT, SHUTDOWN)
            return True
        return False

    def _end(self, call: Call, ending: Ending, reason: str | None) -> None:
        self._host.wake(self._host.provider.ended(self._host.clock_ns(), call, ending, reason))

    def _fields(self, call: Call) -> Headers:
        return [*self._wire.headers(call, self._host.clock_ns(), self._headers), *self._limits]

    async def _reply(self, call: Call, status: int, body: bytes, fields: Headers | None = None) -> None:
        await self._start(status, [content_type(body), *(fields or []), *self._fields(call)], len(body))
        await self._body(body, more=False)

    async def _start(self, status: int, fields: Headers, length: int | None) -> None:
        if self._begin is not None and self._begin(status, fields, length):
            return
        if length is not None:
            fields = [*fields, (b"content-length", b"%d" % length)]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def _body(self, body: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
