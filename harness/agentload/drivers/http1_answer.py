"""One HTTP/1.1 answer, parsed as its bytes arrive, within bounds. No sockets and no clock.

RFC 9112 for framing; `httptools` (llhttp, the parser of Node.js) does the work.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import httptools
from httptools import HttpParserError, HttpParserUpgrade

MAX_HEAD_BYTES = 64 * 1024
"""Of all header fields of an answer, trailers included; and of what may come without a byte of the body."""
MAX_BODY_BYTES = 8 * 1024 * 1024
"""Hundreds of answers may be open at once, each with so much."""
MAX_INTERIM_ANSWERS = 16
"""1xx answers accepted before the real one."""
_FRAMING = (b"content-length", b"transfer-encoding")


class Failure(StrEnum):
    """Why an exchange brought no whole answer. The value goes into records as their `reason`."""

    NAME = "name-not-resolved"
    REFUSED = "connection-refused"
    UNREACHABLE = "connect-failed"
    TLS = "tls-failed"
    TIMEOUT = "timeout"
    """The deadline of the whole exchange passed."""
    STALE = "stale-connection"
    """A kept-alive connection was closed by the server without one byte of an answer."""
    NO_ANSWER = "closed-before-answer"
    CUT_OFF = "closed-mid-answer"
    RESET = "connection-reset"
    MALFORMED = "malformed-answer"
    TOO_LARGE = "answer-too-large"
    EXHAUSTED = "out-of-local-resources"
    """No file descriptor, port or buffer left on this machine: our fault, not the target's."""


class ExchangeError(Exception):
    """An exchange that failed; caught within `http1` and turned into a field of its result."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


class Answer:
    """Collects one answer. `feed` never raises: what is wrong is in `error`, what came before it is kept."""

    __slots__ = (
        "_barren_bytes",
        "_fed_bytes",
        "_field_bytes",
        "_interim",
        "_parser",
        "body_bytes",
        "chunks",
        "complete",
        "error",
        "has_head",
        "headers",
        "max_body_bytes",
        "reusable",
        "status",
        "surplus",
    )

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._fed_bytes = 0
        self._barren_bytes = 0
        """Fed since the last byte of the body: the parser holds an unfinished trailer without limit."""
        self._field_bytes = 0
        self._interim = 0
        self.max_body_bytes = max_body_bytes
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Of the final answer, as they came; trailers are appended."""
        self.chunks: list[bytes] = []
        """Body bytes as they came; whoever takes them puts an empty list in their place."""
        self.body_bytes = 0
        self.has_head = False
        """The final status and headers are known."""
        self.complete = False
        self.reusable = False
        """The connection may carry another request."""
        self.surplus = False
        """Bytes came after the end of the answer."""
        self.error: ExchangeError | None = None

    def feed(self, data: bytes) -> None:
        """More bytes from the server."""
        self._fed_bytes += len(data)
        self._barren_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._note_parser_error(error)
        if not self.has_head and self._fed_bytes > MAX_HEAD_BYTES:
            self._fail(Failure.TOO_LARGE, f"no end of the headers in {MAX_HEAD_BYTES} bytes")
        elif self._barren_bytes > MAX_HEAD_BYTES:
            self._fail(Failure.TOO_LARGE, f"nothing of the body in {MAX_HEAD_BYTES} bytes")
        if self.complete or self.error:
            self._parser = None  # the parser refers back to this object: break the cycle

    def end_of_stream(self) -> None:
        """The server closed. That ends an answer without a length; any other has been cut off."""
        if not self.has_head:
            if self._fed_bytes:
                self._fail(Failure.CUT_OFF, "closed before the end of the headers")
            else:
                self._fail(Failure.NO_ANSWER, "closed without an answer")
        elif any(name.lower() in _FRAMING for name, _ in self.headers):
            self._fail(Failure.CUT_OFF, f"closed after {self.body_bytes} bytes of an unfinished body")
        else:
            self.complete = True
        self._parser = None

    def _fail(self, failure: Failure, detail: str) -> None:
        if self.error is None and not self.complete:
            self.error = ExchangeError(failure, detail)

    def _note_parser_error(self, error: Exception) -> None:
        if self.complete:
            self.surplus, self.reusable = True, False
        elif isinstance(error, HttpParserUpgrade):
            self._fail(Failure.MALFORMED, "switched protocols without being asked to")
        else:
            self._fail(Failure.MALFORMED, f"not HTTP/1.1: {error}")

    # -- what httptools calls

    def on_message_begin(self) -> None:
        """A status line begins."""
        if self.complete:
            self.surplus, self.reusable = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header (or trailer)."""
        if self.complete:
            return
        self._field_bytes += len(name) + len(value)
        if self._field_bytes > MAX_HEAD_BYTES:
            self._fail(Failure.TOO_LARGE, f"the header fields have more than {MAX_HEAD_BYTES} bytes")
        else:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The blank line after the headers."""
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self.has_head = True

    def on_body(self, body: bytes) -> None:
        """Some decoded bytes of the body."""
        if self.complete:
            return
        self._barren_bytes = 0
        self.body_bytes += len(body)
        if self.body_bytes > self.max_body_bytes:
            self._fail(Failure.TOO_LARGE, f"the body has more than {self.max_body_bytes} bytes")
        else:
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        """The end of an answer, final or interim."""
        if self.complete:
            return
        if self.has_head:
            self.complete = self.error is None
            self.reusable = bool(self._parser.should_keep_alive())
            return
        self._interim += 1
        self.headers = []
        if self._interim > MAX_INTERIM_ANSWERS:
            self._fail(Failure.MALFORMED, f"more than {MAX_INTERIM_ANSWERS} interim answers")
