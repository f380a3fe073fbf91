"""uvicorn's HTTP/1.1 with bounds on what it has none for: how long a head may be, and how slowly it may come.

The reference gateway serves with it, too (the provider may import nothing of the gateway's).
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and header fields; of its trailers; and of a chunk's extensions. Longer is a 431."""
READ_S = 30.0
"""Longest wait for a whole head, and for the next piece of a body. (nginx waits twice as long.)"""
ABORT = "fake_provider.abort"
"""Where the ASGI scope holds what ends the connection at once, for a client that does not read."""
_REASONS = {
    HTTPStatus.BAD_REQUEST: ("invalid_http", "this is no HTTP/1.1 request"),
    HTTPStatus.REQUEST_TIMEOUT: ("request_timeout", f"the rest of the request did not come in {READ_S:g} s"),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        "headers_too_long",
        f"the request's line and header fields are longer than {MAX_HEAD_BYTES} bytes",
    ),
}


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client that may mean no good."""

    _unread = 0
    """Bytes received that were neither a whole head yet nor part of a body: httptools holds on to them."""
    _too_long = False
    _reading = False
    """A request has begun and has not come to its end."""
    _moved = False
    """A piece of its body has come since the timer was set."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._reading:
            if self._timer is None:
                self._set_timer()
        elif self._timer is not None:
            self._stop_timer()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """The answer to what uvicorn could not read, in the form of every other refusal."""
        too_long = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._refuse(too_long if self._too_long else HTTPStatus.BAD_REQUEST)

    # ----------------------------------------------------------------- told by the parser

    def on_message_begin(self) -> None:
        self._reading = True
        super().on_message_begin()
        cast(dict[str, object], self.scope)[ABORT] = self.transport.abort

    def on_headers_complete(self) -> None:
        if self._unread > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES:
            self._too_long = True
            raise ValueError("the head is too long")  # which ends in send_400_response
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        self._reading = False
        super().on_message_complete()

    def _head_bytes(self) -> int:
        """`_unread` may hold what came behind the head in one piece with it."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # ----------------------------------------------------------------- refusals

    def _set_timer(self) -> None:
        self._moved = False
        self._timer = self.loop.call_later(READ_S, self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._moved or self.pipeline:  # it waits for its turn: that nothing comes is our doing
            self._set_timer()
        elif self._reading:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        """Say why, unless that would be taken for (a part of) another request's answer; then close."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        free = cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)
        if free and not self.pipeline:
            self.transport.write(refusal(status))
        self.transport.close()


def refusal(status: HTTPStatus) -> bytes:
    """A whole answer, in OpenAI's form."""
    code, message = _REASONS[status]
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    body = json.dumps({"error": error}, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
