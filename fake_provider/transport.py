"""The client at the other end, seen from its transport.

uvicorn's `send()` returns as if nothing were wrong after the client has left: a ledger that trusts it lies.
Here the protocol lends each request its connection: who leaves is noticed at once, a reset is a real one.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from fake_provider.bounded_http import BoundedProtocol
from fake_provider.budget import Headers

PEER = "fake_provider.peer"
"""Where the ASGI scope holds the Peer."""
BEGIN = "fake_provider.begin"
"""Where it may hold a Begin."""
Begin = Callable[[int, Headers, int | None], bool]
"""Status, header fields, and the body's length (None: it comes in chunks) → whether the head was written."""
_NS_PER_MS = 1_000_000
_CLOSE_NS = 1_000_000_000


class Peer:
    """One connection. At most one coroutine waits on it, because HTTP/1.1 answers one request at a time."""

    __slots__ = ("_lost", "_transport", "_waiting")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: asyncio.Future[None] | None = None
        self._lost = False

    @property
    def gone(self) -> bool:
        """Whether the client has left (or is being left)."""
        return self._lost or self._transport.is_closing()

    def wake(self) -> None:
        """Ends the present wait: something has changed."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def lost(self) -> None:
        """The connection is no more."""
        self._lost = True
        self.wake()

    async def wait(self, until_ns: int | None) -> None:
        """Waits until `until_ns` on the monotonic clock (None: for ever), or until it is woken or lost."""
        if self._lost:
            return
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = None
        if until_ns is not None:
            # Timers of uvloop have whole milliseconds; rounded up, so that nothing is sent before it is due.
            delay_ms = math.ceil((until_ns - time.monotonic_ns()) / _NS_PER_MS)
            timer = loop.call_later(max(0, delay_ms) / 1000, self.wake)
        try:
            await self._waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """Closes the connection (FIN) after what was written, and returns when it is closed."""
        self._transport.close()
        await self._until_lost()

    async def reset(self) -> None:
        """Resets the connection (RST), and returns when it is closed."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None and not self._transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
        await self._until_lost()

    async def _until_lost(self) -> None:
        # Returning earlier would have uvicorn complain about an incomplete answer, which is what was wanted.
        give_up_ns = time.monotonic_ns() + _CLOSE_NS
        while not self._lost and time.monotonic_ns() < give_up_ns:
            await self.wait(give_up_ns)
        if not self._lost:
            self._transport.abort()


class LendingProtocol(BoundedProtocol):
    """uvicorn's HTTP/1.1, lending its connection to the application."""

    peer: Peer

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer = Peer(transport)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, object], self.scope)[PEER] = self.peer

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # Its own cycle: by the time it is answered, that of the connection may be a later request's.
        cast(dict[str, object], self.scope)[BEGIN] = partial(self._begin, self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.peer.lost()

    def _begin(self, cycle: RequestResponseCycle, status: int, fields: Headers, length: int | None) -> bool:
        """As uvicorn's `send` would, without looking for what no field may hold: a tenth of a call's cost.

        Our fields hold nothing of the kind, and what they repeat of the request has passed its parser.
        """
        if cycle.response_started or cycle.disconnected or self.flow.write_paused:
            return False
        lines = [b"%b: %b\r\n" % field for field in (*cycle.default_headers, *fields)]
        body = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
        lines.append(body + b"\r\n")
        lines.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        cycle.chunked_encoding = length is None
        cycle.expected_content_length = length or 0
        self.transport.write(STATUS_LINE[status] + b"".join(lines))
        return True
