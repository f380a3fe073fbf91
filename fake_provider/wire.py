"""What the shell asks of a wire format, so that another provider's is one more file (see `openai`)."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from fake_provider.budget import Headers
from fake_provider.call import Call, CallRequest, Refusal

MAX_BODY_BYTES = 64 * 2**20
"""A longer request body is answered with 413."""

RequestHeaders = Mapping[bytes, bytes]
"""Header fields of a request by lower-case name; of a repeated one the last."""


def bearer_key(headers: RequestHeaders) -> str:
    """The key in `Authorization: Bearer KEY`; "anonymous" when there is none."""
    scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else "anonymous"


def retry_count(headers: RequestHeaders) -> int | None:
    """`x-stainless-retry-count`, which the official SDKs send."""
    count = headers.get(b"x-stainless-retry-count", b"")
    return int(count) if count.isdigit() and len(count) < 10 else None


def http_date(unix_s: int) -> bytes:
    """An instant as HTTP writes it: `Thu, 21 Aug 2025 12:40:59 GMT`."""
    return formatdate(unix_s, usegmt=True).encode()


def retry_fields(refusal: Refusal) -> Headers:
    """Retry-After, and retry-after-ms, as far as the refusal has them."""
    if refusal.retry_at_s is not None:
        return [(b"retry-after", http_date(refusal.retry_at_s))]
    fields: Headers = []
    if refusal.retry_after_s is not None:
        fields.append((b"retry-after", b"%d" % refusal.retry_after_s))
    if refusal.retry_after_ms is not None:
        fields.append((b"retry-after-ms", b"%d" % refusal.retry_after_ms))
    return fields


def error_page(status: int) -> bytes:
    """What stands before an API says when the API does not answer: a page for people, no JSON."""
    title = f"{status} {HTTPStatus(status).phrase}"
    return f"<html>\n<head><title>{title}</title></head>\n<body><h1>{title}</h1></body>\n</html>\n".encode()


def content_type(body: bytes) -> tuple[bytes, bytes]:
    """The field for a body: an error page, or JSON."""
    return b"content-type", b"text/html" if body.startswith(b"<") else b"application/json"


class Unreadable(Exception):
    """A request that the wire format cannot make a call of, with the answer it deserves."""

    def __init__(self, request: CallRequest, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.request = request
        self.status = status
        self.body = body


class Frames(Protocol):
    """One streamed answer as bytes."""

    def piece(self, first: int, last: int) -> bytes:
        """Tokens `first` up to (without) `last`; the opening too when `first` is 0."""
        ...

    def tail(self) -> bytes:
        """What ends a complete stream."""
        ...

    def error(self) -> bytes:
        """An error in the middle of the stream."""
        ...


class Wire(Protocol):
    """One wire format for one endpoint."""

    def parse(self, headers: RequestHeaders, body: bytes) -> CallRequest:
        """The call that a request asks for. Raises Unreadable."""
        ...

    def headers(self, call: Call, now_ns: int, headers: RequestHeaders) -> Headers:
        """What every answer carries beside the rate-limit fields."""
        ...

    def invalid(self, call: Call, wrong: Unreadable) -> bytes:
        """The body of the answer to a request that `parse` could not read."""
        ...

    def refusal(self, refusal: Refusal) -> tuple[Headers, bytes]:
        """Header fields of its own and the body of a refusal."""
        ...

    def whole(self, call: Call) -> bytes:
        """The body of a complete plain answer."""
        ...

    def frames(self, call: Call) -> Frames:
        """The frames of a streamed answer."""
        ...
