"""A request event of Locust's, as far as a record needs it: whatever a user's code has put into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from agentload.client.locust_event import Heard


def heard_of(event: Mapping[str, Any], sent_ns: int, ended_ns: int) -> Heard:
    """What an event says of a request that was sent and ended then."""
    response, exception = event.get("response"), event.get("exception")
    status = getattr(response, "status_code", None)
    return Heard(
        sent_ns=sent_ns,
        ended_ns=ended_ns,
        status=status if isinstance(status, int) and 0 <= status <= 999 else 0,
        headers=_headers(response),
        body=_body(response),
        failure=_failure(exception),
        timed_out=_is_timeout(exception),
        answered_epoch_s=time.time(),
    )


def _body(response: object) -> bytes:
    """As far as it has been read: to read the rest of a stream is for the user's code."""
    for name in ("_content", "_cached_content"):  # of requests, of geventhttpclient
        content = getattr(response, name, None)
        if isinstance(content, bytes | bytearray):
            return bytes(content)
    return b""


def _headers(response: object) -> tuple[tuple[str, str], ...]:
    items: Callable[[], Any] | None = getattr(getattr(response, "headers", None), "items", None)
    if items is None:
        return ()
    return tuple((words_of(name), words_of(value)) for name, value in cast("list[tuple[Any, Any]]", items()))


def _failure(exception: object) -> str | None:
    if not exception:
        return None
    said, kind = words_of(exception), type(exception).__name__
    return said if kind in ("CatchResponseError", "str") and said else f"{kind}: {said}" if said else kind


def words_of(said: object) -> str:
    """Of a user's own exception, say: text that can be written down, where half a surrogate pair cannot, and
    some text where its own code fails."""
    try:
        return str(said).encode("utf-8", "replace").decode()
    except Exception:
        return "says nothing: its __str__ fails"


def _is_timeout(exception: object) -> bool:
    """Of requests, of gevent, of sockets: they have nothing in common but their name."""
    return any(kind.__name__ in ("Timeout", "TimeoutError") for kind in type(exception).__mro__)


def nanoseconds(milliseconds: object) -> int | None:
    """None for what is no duration."""
    if not isinstance(milliseconds, int | float) or not 0 <= milliseconds < 1e12:
        return None
    return round(milliseconds * 1e6)
