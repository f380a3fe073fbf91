"""Builds every answer the gateway gives of its own: status, headers, body. PURE.

Bodies have the error shape of the dialect that was spoken, so that official SDKs show them; the
machine-readable reason is in them and in the `X-Admission-Reason` header. Nothing the provider said about
our account is repeated to a tenant.
"""

from __future__ import annotations

import math
import re
from email.utils import parsedate_to_datetime
from functools import lru_cache

import msgspec

from agentload.gateway.comeback import RetryEnvelope
from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import CHAT
from agentload.gateway.failures import Failure
from agentload.gateway.headers import TO_CLIENT, Headers, first, only
from agentload.model import NS

_ACCOUNT = re.compile(rb"\b(?:org|proj|user|acct)[-_][A-Za-z0-9]{6,}|\bsk-[A-Za-z0-9_*-]{6,}")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no field's value may hold (RFC 9110, 5.5): a provider that sends it is not passed on."""
_NO_STORE = (b"cache-control", b"no-store")


class Answer(msgspec.Struct, frozen=True):
    """One whole HTTP response."""

    status: int
    headers: Headers
    body: bytes


@lru_cache(maxsize=256)
def error_json(dialect: Dialect, status: int, code: str, message: str) -> bytes:
    """The body of an error."""
    return dialect.error(status, code, message)


def failure_event(dialect: Dialect, failure: Failure, number: int) -> bytes:
    """A server-sent event that says so, after `number` others."""
    return dialect.error_event(failure.status, failure.reason, failure.message, number)


def server_timing(
    queue_ns: int | None, upstream_ns: int | None, wait_cause: str = ""
) -> tuple[tuple[bytes, bytes], ...]:
    """`Server-Timing: queue;dur=…, upstream;dur=…` in milliseconds (W3C Server Timing), as far as known.

    Why it waited is the queue's description: `queue;dur=1520.0;desc="model_slow"`.
    """
    parts = [
        b"%s;dur=%.3f" % (name, ns / 1e6)
        for name, ns in ((b"queue", queue_ns), (b"upstream", upstream_ns))
        if ns is not None
    ]
    if wait_cause and queue_ns is not None:
        parts[0] += b';desc="%s"' % wait_cause.encode()
    return ((b"server-timing", b", ".join(parts)),) if parts else ()


def of_failure(
    failure: Failure,
    retry_after_s: int | None,
    queue_ns: int | None = None,
    upstream_ns: int | None = None,
    wait_cause: str = "",
    envelope: RetryEnvelope | None = None,
    dialect: Dialect = CHAT,
) -> Answer:
    """A refusal or a failure as a response.

    A 429 with a promise also carries the IETF's `RateLimit` field
    (draft-ietf-httpapi-ratelimit-headers-10), which says the same as its Retry-After, as that draft
    demands. `x-should-retry` is what official SDKs obey: where the same request would be refused again,
    they are told not to send it. `envelope`: how to come back, for clients that read more than headers.
    """
    body = error_json(dialect, failure.status, failure.reason, failure.message)
    if retry_after_s is not None and envelope is not None:
        # error_json keeps the bodies that it has made: this is written behind what all of a kind share.
        own = b',"retry_after_seconds":%d,"retry":%b}' % (retry_after_s, msgspec.json.encode(envelope))
        body = body[:-1] + own
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        _NO_STORE,
        (b"x-admission-reason", failure.reason.encode()),
        *server_timing(queue_ns, upstream_ns, wait_cause),
    ]
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % retry_after_s))
        if failure.status == 429:
            headers.append((b"ratelimit", b'"admission";r=0;t=%d' % retry_after_s))
    if not failure.may_retry:
        headers.append((b"x-should-retry", b"false"))
    if failure.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return Answer(failure.status, tuple(headers), body)


def passed_on(
    status: int,
    upstream: Headers,
    body: bytes,
    queue_ns: int | None = None,
    upstream_ns: int | None = None,
    wait_cause: str = "",
) -> Answer:
    """A plain answer of the provider: a completion, or its word on what is wrong with the request."""
    if status >= 400:
        body = _ACCOUNT.sub(b"[withheld]", body)
    length = (b"content-length", b"%d" % len(body))
    return Answer(status, (*_passed_headers(upstream, queue_ns, upstream_ns, wait_cause), length), body)


def stream_headers(upstream: Headers, queue_ns: int, upstream_ns: int, wait_cause: str = "") -> Headers:
    """Headers of a stream that is passed on; `upstream_ns` is the time to its first event."""
    # Tells proxies in front of us (nginx) to pass on every event as it comes.
    headers = _passed_headers(upstream, queue_ns, upstream_ns, wait_cause)
    return (*headers, (b"x-accel-buffering", b"no"))


def _passed_headers(
    upstream: Headers, queue_ns: int | None, upstream_ns: int | None, wait_cause: str
) -> Headers:
    return (
        *(field for field in only(upstream, TO_CLIENT) if not _CONTROL.search(field[1])),
        _NO_STORE,
        (b"x-admission-reason", b"admitted"),
        *server_timing(queue_ns, upstream_ns, wait_cause),
    )


def retry_after_ns(headers: Headers) -> int | None:
    """How long the provider asked us to wait: `retry-after-ms`, else Retry-After (RFC 9110), else None.

    An HTTP-date is read against the answer's own Date, so that no clock of ours is involved.
    """
    for name, unit_ns in ((b"retry-after-ms", NS // 1000), (b"retry-after", NS)):
        text = first(headers, name)
        if text:
            try:
                seconds = float(text)
            except ValueError:
                if name == b"retry-after":
                    return _until_date_ns(text, first(headers, b"date"))
                continue
            return round(seconds * unit_ns) if 0 < seconds < 1e9 else None
    return None


def _until_date_ns(date: str, now: str | None) -> int | None:
    try:
        wait = parsedate_to_datetime(date) - parsedate_to_datetime(now or "")
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0, math.ceil(wait.total_seconds())) * NS
