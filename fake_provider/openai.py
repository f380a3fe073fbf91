"""OpenAI's wire format: chat completions (plain and streamed) and the list of models.

Source: https://platform.openai.com/docs/api-reference/chat. Fields that mean nothing here are ignored. The
official SDKs run against it unchanged (`tests/shell/test_provider_sdk.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from fake_provider.budget import NS
from fake_provider.call import Call, CallRequest
from fake_provider.openai_common import (
    OpenAIWire,
    Wrong,
    asked_of,
    overloaded_body,
)
from fake_provider.wire import RequestHeaders, bearer_key, retry_count

OWNER = "fake-provider"
_encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ requests


class _Part(msgspec.Struct):
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text is not None)
        return self.content or ""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    model: str | None = None
    messages: list[_Message] | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None


_decode = msgspec.json.Decoder(_Body).decode


def _check(asked: _Body) -> None:
    if not asked.model:
        raise Wrong("you must provide a model parameter", "model")
    if asked.messages is None:
        raise Wrong("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    if not asked.messages:
        what = "Expected an array with minimum length 1, but got an empty array instead."
        raise Wrong(f"Invalid 'messages': empty array. {what}", "messages", "empty_array")
    limit = _limit(asked)
    if limit is not None and limit < 1:
        what = f"integer below minimum value. Expected a value >= 1, but got {limit} instead."
        raise Wrong(f"Invalid 'max_tokens': {what}", "max_tokens", "integer_below_min_value")
    if asked.n not in (None, 1):
        raise Wrong("Unsupported value: 'n' must be 1 here: one choice a call.", "n", "unsupported_value")


def _limit(asked: _Body) -> int | None:
    return asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens


# ------------------------------------------------------------------------------------------------- answers


class OpenAIChat(OpenAIWire):
    """`POST /v1/chat/completions`."""

    def parse(self, headers: RequestHeaders, body: bytes) -> CallRequest:
        """The call that a request asks for; Unreadable carries what OpenAI would answer."""
        asked = asked_of(headers, body, "chat", _decode, _check)
        messages = asked.messages or []
        texts = [message.text() for message in messages]
        users = [text for text, message in zip(texts, messages, strict=True) if message.role == "user"]
        options = asked.stream_options
        return CallRequest.from_texts(
            texts,
            users[-1] if users else "",
            api_key=bearer_key(headers),
            model=asked.model or "",
            max_tokens=_limit(asked),
            stream=bool(asked.stream),
            include_usage=options is not None and bool(options.include_usage),
            retry_count=retry_count(headers),
        )

    def whole(self, call: Call) -> bytes:
        """The body of a complete plain answer."""
        message = {"role": "assistant", "content": call.text(0, call.output_tokens), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": call.finish_reason}
        return _encode({**self._opening(call, "chat.completion"), "choices": [choice], "usage": _usage(call)})

    def frames(self, call: Call) -> ChatFrames:
        """The frames of a streamed answer."""
        return ChatFrames(call, _encode(self._opening(call, "chat.completion.chunk")))

    def _opening(self, call: Call, kind: str) -> dict[str, Any]:
        entry = call.entry
        started_ns = entry.arrived_ns if entry.started_ns is None else entry.started_ns
        return {
            "id": f"chatcmpl-{entry.run:04x}{entry.call:012x}",
            "object": kind,
            "created": (started_ns + self._epoch_ns) // NS,
            "model": call.request.model,
            "service_tier": "default",
            "system_fingerprint": "fp_fake",
        }


class ChatFrames:
    """The chunks of one stream. What is the same in every chunk is encoded once."""

    def __init__(self, call: Call, opening: bytes) -> None:
        self._call = call
        self._include_usage = call.request.include_usage
        self._before = b"data: " + opening[:-1] + b","

    def piece(self, first: int, last: int) -> bytes:
        """The chunk with those tokens; before the first token, the chunk that names the role."""
        head = self._chunk(b'{"role":"assistant","content":"","refusal":null}') if first == 0 else b""
        if last == first:
            return head
        # All words are plain ASCII letters: there is nothing to escape.
        return head + self._chunk(b'{"content":"%s"}' % self._call.text(first, last).encode())

    def tail(self) -> bytes:
        """The chunk with the finish reason, the usage chunk if it was asked for, and `[DONE]`."""
        end = self._chunk(b"{}", b'"%s"' % self._call.finish_reason.encode())
        if self._include_usage:
            end += self._before + b'"choices":[],"usage":' + _encode(_usage(self._call)) + b"}\n\n"
        return end + b"data: [DONE]\n\n"

    def error(self) -> bytes:
        """An error event, as overload shows once the headers are out."""
        return b"data: " + overloaded_body() + b"\n\n"

    def _chunk(self, delta: bytes, finish: bytes = b"null") -> bytes:
        usage = b',"usage":null' if self._include_usage else b""
        choice = b'"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]' % (delta, finish)
        return self._before + choice + usage + b"}\n\n"


def _usage(call: Call) -> dict[str, Any]:
    prompt, completion = call.request.input_tokens, call.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def model_body(name: str) -> dict[str, Any]:
    """One model, as `GET /v1/models/{model}` has it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER}


def models_body(names: tuple[str, ...]) -> dict[str, Any]:
    """All models, as `GET /v1/models` has them."""
    return {"object": "list", "data": [model_body(name) for name in names]}
