"""HTTP header fields as the gateway's pure parts see them: which are read, passed on, or dropped. PURE."""

from __future__ import annotations

from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields as they go over the wire, names in lower case."""

IDEMPOTENCY_KEY = b"idempotency-key"
TO_PROVIDER = frozenset(
    {
        b"traceparent",
        b"tracestate",
        IDEMPOTENCY_KEY,
        b"openai-beta",
        b"anthropic-beta",
        b"anthropic-version",
        b"x-client-request-id",
        b"x-stainless-retry-count",
    }
)
"""Passed on to the provider. Everything else stays here: tenants' keys and names are none of its business."""

TO_CLIENT = frozenset(
    {b"content-type", b"x-request-id", b"request-id", b"openai-processing-ms", b"openai-version"}
)
"""Passed on to the client. Everything else is dropped, above all what tells of our account with the provider:
`openai-organization`, `openai-project`, `anthropic-organization-id`, `x-ratelimit-*` and `retry-after` (the
account's limits, which no single tenant can act on), `set-cookie`, `cf-*`, and the connection's framing."""


def first(headers: Headers, name: bytes) -> str | None:
    """The first field of that name, stripped; None when absent. Bytes outside ASCII become U+FFFD."""
    for key, value in headers:
        if key == name:
            return value.decode("ascii", "replace").strip()
    return None


def only(headers: Headers, names: frozenset[bytes]) -> Headers:
    """The fields whose names are in `names`, in order."""
    return tuple(field for field in headers if field[0] in names)
