"""Reads what the provider sends while it passes by: tokens, usage, errors, and whether it really ended. PURE.

A status of 200 says nothing about how a stream ends: providers report overload inside it, proxies cut it,
and no SDK notices a clean early end. So the bytes are read here event by event, and a stream counts as
complete only when its terminal event (`data: [DONE]`) has come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol, cast

import msgspec

from agentload.gateway.json_bounds import MAX_TOKENS, UNREADABLE

MAX_EVENT_BYTES = 2**20
"""A longer event is passed on unread: memory is bounded, and no model produces one."""
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_EDGE = 3
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")
_DONE = b"[DONE]"
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


class Meter(Protocol):
    """Reads one answer, piece by piece."""

    def feed(self, data: bytes) -> Reading: ...

    def finish(self) -> Reading: ...


# --------------------------------------------------------------------------- the provider's JSON


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Delta(msgspec.Struct):
    # Any: what one provider sends as text another sends as parts, and neither is our business.
    content: Any = None
    reasoning_content: Any = None
    refusal: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None


class Completion(msgspec.Struct):
    """What is read of a chat completion, or of one chunk of it."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_COMPLETION = msgspec.json.Decoder(Completion)


def decode_answer(data: bytes) -> Completion | None:
    """A chat completion or one chunk of one; None when it is neither."""
    try:
        return _COMPLETION.decode(data)
    except UNREADABLE:
        return None


def provider_error(value: Any) -> ProviderError | None:
    """The `error` member of a body, whatever its shape; None when there is none."""
    if not value:
        return None
    if not isinstance(value, dict):
        return ProviderError(code="", message=_said(value))
    fields = cast("dict[str, Any]", value)
    code = fields.get("code") or fields.get("type")
    return ProviderError(code=_said(code)[:_MAX_CODE], message=_said(fields.get("message")))


def _said(value: Any) -> str:
    """A name or message; a tree is neither, and may be too deep to be shown."""
    return str(value)[:_MAX_MESSAGE] if isinstance(value, str | int | float) and value else ""


def text_tokens(text: str) -> int:
    """A cheap estimate of the tokens in model output: words, or a sixth of the bytes where words are few."""
    return max(len(text.split()), len(text.encode("utf-8", "replace")) // 6) if text else 0


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """All text in a piece of output: content, parts, arguments of tool calls."""
    if isinstance(value, str):
        yield value
    elif depth > _MAX_DEPTH:
        return
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name in ("text", "function", "arguments"):
            yield from _texts(fields.get(name), depth + 1)


def _choice_tokens(choice: _Choice) -> int:
    part = choice.delta or choice.message
    if part is None:
        return 0
    if part.tool_calls is None and part.reasoning_content is None and part.refusal is None:
        texts = _texts(part.content)
    else:
        texts = _texts([part.content, part.reasoning_content, part.refusal, part.tool_calls])
    return sum(max(1, text_tokens(text)) for text in texts if text)


def _usage(answer: Completion) -> Usage | None:
    counted = answer.usage
    if counted is None or counted.completion_tokens is None:
        return None
    usage = Usage(counted.prompt_tokens or 0, counted.completion_tokens)
    return usage if _is_count(usage.input_tokens) and _is_count(usage.output_tokens) else None


def _is_count(tokens: int) -> bool:
    """Else the provider is wrong, and its answer is measured by its text."""
    return 0 <= tokens <= MAX_TOKENS


# --------------------------------------------------------------------------- streams


class SseMeter:
    """Reads a stream of server-sent events and says which bytes may go to the client.

    Only whole events are passed on: half an event is of no use to a client, and once it is out, an error or
    a cut can no longer be told apart from an answer. `hide_usage`: the usage event was our wish, not the
    client's.
    """

    def __init__(self, *, hide_usage: bool = False) -> None:
        self._hide_usage = hide_usage
        self._held = bytearray()
        """The beginning of an event; not searched again with every piece that comes."""
        self._edge = b""
        """The last bytes of what is held: a blank line may be cut anywhere."""
        self._over = False

    def feed(self, data: bytes) -> Reading:
        """Read on. Nothing after the terminal event or an error is looked at or passed on."""
        if self._over:
            return Reading()
        buffer = self._edge + data if self._edge else data
        cut = _whole_events(buffer)
        if not cut:
            self._hold(data)
            return Reading(forward=self._taken()) if len(self._held) > MAX_EVENT_BYTES else Reading()
        if self._held:
            buffer = self._taken() + data
            cut = _whole_events(buffer)
        if cut < len(buffer):
            self._hold(buffer[cut:])
        return self._read(buffer[:cut])

    def finish(self) -> Reading:
        """The end of the body: what is left is half an event, and is dropped."""
        return Reading()

    def _hold(self, data: bytes) -> None:
        self._held += data
        self._edge = bytes(self._held[-_LONGEST_EDGE:])

    def _taken(self) -> bytes:
        """What is held; nothing is after that."""
        held, self._held, self._edge = bytes(self._held), bytearray(), b""
        return held

    def _read(self, block: bytes) -> Reading:
        kept: list[bytes] = []
        tokens, usage = 0, None
        start = 0
        for match in _EVENT_END.finditer(block):
            event, start = block[start : match.end()], match.end()
            payload = event_data(event)
            if payload == _DONE:
                self._over = True
                kept.append(event)
                break
            answer = decode_answer(payload) if payload else None
            if answer is not None:
                error = provider_error(answer.error)
                if error is not None:
                    self._over = True
                    return Reading(forward=b"".join(kept), tokens=tokens, usage=usage, error=error)
                tokens += sum(map(_choice_tokens, answer.choices or ()))
                usage = _usage(answer) or usage
                if self._hide_usage and answer.usage is not None and not answer.choices:
                    continue
            kept.append(event)
        return Reading(forward=b"".join(kept), tokens=tokens, usage=usage, terminal=self._over)


def _whole_events(buffer: bytes) -> int:
    """Length of the part of `buffer` that consists of whole events."""
    length = 0
    for mark in _BLANK_LINES if b"\r" in buffer else _BLANK_LINES[:1]:
        at = buffer.rfind(mark)
        if at >= 0:
            length = max(length, at + len(mark))
    return length


def event_data(event: bytes) -> bytes:
    """The data of one server-sent event: its `data:` lines joined by newlines (WHATWG HTML, 9.2.6)."""
    if event.startswith(b"data: ") and event.count(b"\n") <= 2 and b"\r" not in event:
        return event[6:].rstrip(b"\n")
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


# --------------------------------------------------------------------------- plain answers


class PlainMeter:
    """Collects a plain body, so that a cut one can still be answered with an error status."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return b"".join(self._parts)

    def feed(self, data: bytes) -> Reading:
        """Keep the bytes; an error once they exceed `max_bytes`."""
        self._size += len(data)
        if self._size > self._max_bytes:
            self._parts.clear()
            return Reading(error=ProviderError("answer_too_long", f"more than {self._max_bytes} bytes"))
        self._parts.append(data)
        return Reading()

    def finish(self) -> Reading:
        """The whole body: its usage, and the error it may hold although the status said 200."""
        body = self.body
        answer = decode_answer(body)
        error = provider_error(answer.error) if answer else None
        if answer is None or (answer.choices is None and error is None):
            return Reading(error=ProviderError("invalid_answer", "the body is not a chat completion"))
        usage = _usage(answer)
        tokens = usage.output_tokens if usage else sum(map(_choice_tokens, answer.choices or ()))
        return Reading(forward=body, tokens=tokens, usage=usage, terminal=error is None, error=error)
