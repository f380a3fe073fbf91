"""OpenAI's chat completions, which everybody else's gateways and model servers speak, too.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from agentload.gateway.dialects import Asked, Count, Dialect, ModelName
from agentload.gateway.dialects._openai import error_body
from agentload.gateway.json_bounds import UNREADABLE
from agentload.gateway.usage import Seen, all_texts, counted, piece_tokens, provider_error

_DONE = b"[DONE]"
_USAGE_WISH = b'"stream_options":{"include_usage":true},'
_NAMES = ("text", "function", "arguments")
_END = Seen(terminal=True)


# --------------------------------------------------------------------------- requests


class _Part(msgspec.Struct):
    text: str | None = None


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()

    def chars(self) -> int:
        if isinstance(self.content, list):
            chars = sum(len(part.text or "") for part in self.content)
        else:
            chars = len(self.content or "")
        return chars + len(bytes(self.tool_calls))


class _Body(msgspec.Struct):
    model: ModelName
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    tools: msgspec.Raw = msgspec.Raw()


_decode_body = msgspec.json.Decoder(_Body).decode


# --------------------------------------------------------------------------- answers


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

    def tokens(self) -> int:
        part = self.delta or self.message
        if part is None:
            return 0
        if part.tool_calls is None and part.reasoning_content is None and part.refusal is None:
            texts = all_texts(part.content, _NAMES)
        else:
            said = [part.content, part.reasoning_content, part.refusal, part.tool_calls]
            texts = all_texts(said, _NAMES)
        return piece_tokens(texts)


class _Completion(msgspec.Struct):
    """A chat completion, or one chunk of it."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None

    def seen(self, *, terminal: bool) -> Seen:
        told = self.usage
        return Seen(
            tokens=sum(choice.tokens() for choice in self.choices or ()),
            usage=counted(told.prompt_tokens, told.completion_tokens) if told else None,
            only_usage=told is not None and not self.choices,
            terminal=terminal,
            error=provider_error(self.error),
        )


_decode_answer = msgspec.json.Decoder(_Completion).decode


class Chat(Dialect):
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"
    request = "a chat completion request"
    answer = "a chat completion"

    def asked(self, body: bytes) -> Asked:
        """All choices together may be `n` times as long."""
        read = _decode_body(body)
        bound = read.max_completion_tokens or read.max_tokens
        unwished = bool(read.stream) and read.stream_options is msgspec.UNSET
        return Asked(
            model=read.model,
            text_chars=len(bytes(read.tools)) + sum(message.chars() for message in read.messages),
            max_output_tokens=bound * (read.n or 1) if bound else None,
            stream=bool(read.stream),
            usage_wish=_USAGE_WISH if unwished else b"",
        )

    def events(self) -> Callable[[bytes], Seen | None]:
        """Chunks, and `[DONE]`; the chunk with the usage comes last."""
        return _chunk

    def whole(self, body: bytes) -> Seen | None:
        """A completion has choices."""
        answer = _read(body)
        if answer is None or (answer.choices is None and not answer.error):
            return None
        return answer.seen(terminal=True)

    def error(self, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return error_body(status, code, message)

    def error_event(self, status: int, code: str, message: str, number: int) -> bytes:  # noqa: ARG002
        """A chunk that is an error object."""
        return b"data: " + error_body(status, code, message) + b"\n\n"


def _read(data: bytes) -> _Completion | None:
    try:
        return _decode_answer(data)
    except UNREADABLE:
        return None


def _chunk(payload: bytes) -> Seen | None:
    if payload == _DONE:
        return _END
    chunk = _read(payload)
    return None if chunk is None else chunk.seen(terminal=False)


CHAT = Chat()
