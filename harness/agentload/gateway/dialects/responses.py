"""OpenAI's responses, in the foreground: what is to be answered later is a job of ours (`/v1/jobs`).

Sources: https://platform.openai.com/docs/api-reference/responses and …/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentload.gateway.dialects import Asked, Count, Dialect, ModelName
from agentload.gateway.dialects._openai import encode, error_body, error_type
from agentload.gateway.json_bounds import UNREADABLE
from agentload.gateway.usage import (
    ProviderError,
    Seen,
    Usage,
    all_texts,
    counted,
    piece_tokens,
    provider_error,
)

_NAMES = ("text", "content", "summary", "arguments", "refusal")
_ENDS = ("response.completed", "response.incomplete")


# --------------------------------------------------------------------------- requests


class _Part(msgspec.Struct):
    text: str | None = None


_Content = str | list[_Part] | None


class _Item(msgspec.Struct):
    content: _Content = None
    arguments: str | None = None
    """Of a tool's call."""
    output: msgspec.Raw = msgspec.Raw()
    """Of a tool."""

    def chars(self) -> int:
        return _chars(self.content) + len(self.arguments or "") + len(bytes(self.output))


class _Body(msgspec.Struct):
    model: ModelName
    input: str | list[_Item] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: msgspec.Raw = msgspec.Raw()

    def input_chars(self) -> int:
        if isinstance(self.input, list):
            return sum(item.chars() for item in self.input)
        return len(self.input or "")


def _chars(content: _Content) -> int:
    if isinstance(content, list):
        return sum(len(part.text or "") for part in content)
    return len(content or "")


_decode_body = msgspec.json.Decoder(_Body).decode


# --------------------------------------------------------------------------- answers


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[Any] | None = None
    usage: _Usage | None = None
    error: Any = None

    def counted(self) -> Usage | None:
        return counted(self.usage.input_tokens, self.usage.output_tokens) if self.usage else None

    def failure(self) -> ProviderError | None:
        error = provider_error(self.error)
        return error or (ProviderError("", "the response failed") if self.status == "failed" else None)


class _Event(msgspec.Struct):
    type: str = ""
    delta: Any = None
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None

    def failure(self) -> ProviderError | None:
        """An error event has its error in itself or, in the field, as a member."""
        if self.response is not None and (failed := self.response.failure()) is not None:
            return failed
        error = provider_error(self.error)
        if error is None and self.type == "error":
            error = provider_error({"code": self.code, "message": self.message})
        return error


_decode_response = msgspec.json.Decoder(_Response).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class Responses(Dialect):
    """`POST /v1/responses`."""

    path = "/v1/responses"
    request = "a responses request"
    answer = "a response"

    def asked(self, body: bytes) -> Asked:
        """The usage of a stream is always told. What an earlier response holds is not seen here."""
        read = _decode_body(body)
        if read.background:
            raise msgspec.ValidationError("`background` must be false here: POST /v1/jobs has the same use")
        return Asked(
            model=read.model,
            text_chars=len(bytes(read.tools)) + len(read.instructions or "") + read.input_chars(),
            max_output_tokens=read.max_output_tokens,
            stream=bool(read.stream),
        )

    def events(self) -> Callable[[bytes], Seen | None]:
        """Events by their `type`; unknown ones pass."""
        return _event

    def whole(self, body: bytes) -> Seen | None:
        """A response has output."""
        try:
            answer = _decode_response(body)
        except UNREADABLE:
            return None
        error = answer.failure()
        if answer.output is None and error is None:
            return None
        tokens = piece_tokens(all_texts(answer.output, _NAMES))
        return Seen(tokens=tokens, usage=answer.counted(), terminal=True, error=error)

    def error(self, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return error_body(status, code, message)

    def error_event(self, status: int, code: str, message: str, number: int) -> bytes:
        """An `error` event as documented, and the error as a member, on which the official SDK raises."""
        said: dict[str, Any] = {"code": code, "message": message, "param": None}
        error = {"type": error_type(status), **said}
        event = {"type": "error", "sequence_number": number, **said, "error": error}
        return b"event: error\ndata: " + encode(event) + b"\n\n"


def _event(payload: bytes) -> Seen | None:
    try:
        event = _decode_event(payload)
    except UNREADABLE:
        return None
    response, is_text = event.response, event.type.endswith(".delta") and isinstance(event.delta, str)
    return Seen(
        tokens=piece_tokens((event.delta,)) if is_text else 0,
        usage=response.counted() if response is not None else None,
        terminal=event.type in _ENDS,
        error=event.failure(),
    )
