"""Anthropic's messages.

Sources: https://platform.claude.com/docs/en/api/messages, …/messages-streaming and …/errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from agentload.gateway.dialects import Asked, Count, Dialect, ModelName
from agentload.gateway.json_bounds import UNREADABLE
from agentload.gateway.usage import Seen, Usage, all_texts, counted, piece_tokens, provider_error

_NAMES = ("text", "thinking", "content")
_encode = msgspec.json.Encoder().encode


# --------------------------------------------------------------------------- requests


class _Block(msgspec.Struct):
    text: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    """Of a tool's result."""
    input: msgspec.Raw = msgspec.Raw()
    """Of a tool's call."""


_Content = str | list[_Block] | None


class _Message(msgspec.Struct):
    content: _Content = None


class _Body(msgspec.Struct):
    model: ModelName
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    system: _Content = None
    max_tokens: Count | None = None
    stream: bool | None = None
    tools: msgspec.Raw = msgspec.Raw()


def _chars(content: _Content) -> int:
    if isinstance(content, list):
        return sum(len(one.text or "") + len(bytes(one.content)) + len(bytes(one.input)) for one in content)
    return len(content or "")


_decode_body = msgspec.json.Decoder(_Body).decode


# --------------------------------------------------------------------------- answers


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None

    def read(self, known_input: int = 0) -> Usage | None:
        """Tokens read from the cache count towards no limit."""
        told, made = self.input_tokens, self.cache_creation_input_tokens
        return counted(known_input if told is None else told + (made or 0), self.output_tokens)


class _Message200(msgspec.Struct):
    """A message, or the one that an event opens."""

    content: list[Any] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Delta(msgspec.Struct):
    text: Any = None
    thinking: Any = None
    partial_json: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message200 | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_message = msgspec.json.Decoder(_Message200).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class _Events:
    """One stream. Its last count may name the output alone: what went in is told at its start."""

    def __init__(self) -> None:
        self._input = 0

    def __call__(self, payload: bytes) -> Seen | None:
        try:
            event = _decode_event(payload)
        except UNREADABLE:
            return None
        return Seen(
            tokens=_tokens(event.delta),
            usage=self._usage(event),
            terminal=event.type == "message_stop",
            error=provider_error(event.error),
        )

    def _usage(self, event: _Event) -> Usage | None:
        if event.message is not None and event.message.usage is not None:
            opened = event.message.usage.read()
            self._input = opened.input_tokens if opened else 0
            # What it says of the output is a beginning, and the first words come with their own event.
            return opened and Usage(self._input, 0)
        return event.usage.read(self._input) if event.usage else None


def _tokens(delta: _Delta | None) -> int:
    if delta is None:
        return 0
    said = (delta.text, delta.thinking, delta.partial_json)
    return piece_tokens(text for text in said if isinstance(text, str))


_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Messages(Dialect):
    """`POST /v1/messages`."""

    path = "/v1/messages"
    request = "a messages request"
    answer = "a message"

    def asked(self, body: bytes) -> Asked:
        """The usage of a stream is always told."""
        read = _decode_body(body)
        prompt = [read.system, *(message.content for message in read.messages)]
        return Asked(
            model=read.model,
            text_chars=len(bytes(read.tools)) + sum(map(_chars, prompt)),
            max_output_tokens=read.max_tokens,
            stream=bool(read.stream),
        )

    def events(self) -> Callable[[bytes], Seen | None]:
        """Events by their `type`; unknown ones pass."""
        return _Events()

    def whole(self, body: bytes) -> Seen | None:
        """A message has content."""
        try:
            answer = _decode_message(body)
        except UNREADABLE:
            return None
        error = provider_error(answer.error)
        if answer.content is None and error is None:
            return None
        return Seen(
            tokens=piece_tokens(all_texts(answer.content, _NAMES)),
            usage=answer.usage.read() if answer.usage else None,
            terminal=True,
            error=error,
        )

    def error(self, status: int, code: str, message: str) -> bytes:
        """Anthropic's error object; the machine-readable reason is its `details.error_code`."""
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        error = {"details": {"error_code": code}, "type": kind, "message": message}
        return _encode({"type": "error", "error": error, "request_id": None})

    def error_event(self, status: int, code: str, message: str, number: int) -> bytes:  # noqa: ARG002
        """An `error` event."""
        return b"event: error\ndata: " + self.error(status, code, message) + b"\n\n"

    def credentials(self, key: str) -> tuple[str, str]:
        """Anthropic's keys are not bearer tokens."""
        return "x-api-key", key
