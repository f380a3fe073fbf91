"""What the gateway reads out of a provider's answer: tokens, usage, errors, and whether it ended. PURE.

How a dialect puts these into its bodies and events is its own business (`dialects/`); what they mean to the
gateway is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from agentload.gateway.json_bounds import MAX_TOKENS, UNREADABLE

_MAX_CODE = 200
_MAX_MESSAGE = 2_000
_MAX_DEPTH = 20
"""Of output that is looked into for text: parts, their items, the arguments of tool calls."""


class Usage(msgspec.Struct, frozen=True):
    """The provider's own count of one call."""

    input_tokens: int
    output_tokens: int


class ProviderError(msgspec.Struct, frozen=True):
    """An error that the provider put into a body or a stream."""

    code: str
    message: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one event of a stream, or one whole body, says."""

    tokens: int = 0
    """Output tokens that it carries, estimated from its text."""
    usage: Usage | None = None
    """The provider's count up to here, this event included."""
    only_usage: bool = False
    """It is there for the usage alone."""
    terminal: bool = False
    """The provider says that this is the end."""
    error: ProviderError | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of the provider's answer held."""

    forward: bytes = b""
    """Whole events to pass on to the client; never half an event, never anything after an error."""
    tokens: int = 0
    """Output tokens that these events carry, estimated from their text."""
    usage: Usage | None = None
    terminal: bool = False
    """The provider has said that this is the end."""
    error: ProviderError | None = None


def counted(input_tokens: int | None, output_tokens: int | None) -> Usage | None:
    """A provider's count; None where it lacks the output, or is none that can be."""
    if output_tokens is None:
        return None
    usage = Usage(input_tokens or 0, output_tokens)
    return usage if _is_count(usage.input_tokens) and _is_count(usage.output_tokens) else None


def _is_count(tokens: int) -> bool:
    """Else the provider is wrong, and its answer is measured by its text."""
    return 0 <= tokens <= MAX_TOKENS


def provider_error(value: Any) -> ProviderError | None:
    """The `error` member of a body, whatever its shape; None when there is none."""
    if not value:
        return None
    if not isinstance(value, dict):
        return ProviderError(code="", message=_said(value))
    fields = cast("dict[str, Any]", value)
    details = fields.get("details")
    finer = cast("dict[str, Any]", details).get("error_code") if isinstance(details, dict) else None
    code = fields.get("code") or finer or fields.get("type")
    return ProviderError(code=_said(code)[:_MAX_CODE], message=_said(fields.get("message")))


class _Refused(msgspec.Struct):
    error: Any = None


_decode_refused = msgspec.json.Decoder(_Refused).decode


def error_in(body: bytes) -> ProviderError | None:
    """The error in the body of a status other than 2xx; all dialects have it in the same place."""
    try:
        return provider_error(_decode_refused(body).error)
    except UNREADABLE:
        return None


def _said(value: Any) -> str:
    """A name or message; a tree is neither, and may be too deep to be shown."""
    return str(value)[:_MAX_MESSAGE] if isinstance(value, str | int | float) and value else ""


def text_tokens(text: str) -> int:
    """A cheap estimate of the tokens in model output: words, or a sixth of the bytes where words are few."""
    return max(len(text.split()), len(text.encode("utf-8", "replace")) // 6) if text else 0


def piece_tokens(texts: Iterable[str]) -> int:
    """Tokens of pieces of model output; no piece that says anything counts as nothing."""
    return sum(max(1, text_tokens(text)) for text in texts if text)


def all_texts(value: Any, names: tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """All text in a piece of output: itself, its items, and the members of these names."""
    if isinstance(value, str):
        yield value
    elif depth > _MAX_DEPTH:
        return
    elif isinstance(value, list):
        for item in value:
            yield from all_texts(item, names, depth + 1)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name in names:
            yield from all_texts(fields.get(name), names, depth + 1)
