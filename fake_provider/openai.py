"""OpenAI's wire format: chat completions (plain and streamed), the list of models, and errors.

Source: https://platform.openai.com/docs/api-reference/chat. Fields that mean nothing here are ignored. The
official SDKs run against it unchanged (`tests/shell/test_provider_sdk.py`).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fake_provider.budget import NS, Headers, go_duration
from fake_provider.call import Call, CallRequest, Reason, Refusal
from fake_provider.reply import NS_PER_MS
from fake_provider.wire import (
    MAX_BODY_BYTES,
    RequestHeaders,
    Unreadable,
    bearer_key,
    retry_count,
    retry_fields,
)

ORGANIZATION = "org-fake"
OWNER = "fake-provider"
_MORE = "Visit https://platform.openai.com/account/rate-limits to learn more."
_FIXED_HEADERS: Headers = [
    (b"openai-organization", ORGANIZATION.encode()),
    (b"openai-version", b"2020-10-01"),
]
_REQUEST_ID_LENGTH = 512
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


class _Wrong(Exception):
    """What is wrong with a request, in OpenAI's words."""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error_body(message, "invalid_request_error", code, param)


_decode = msgspec.json.Decoder(_Body).decode


def _read(body: bytes) -> _Body:
    if len(body) > MAX_BODY_BYTES:
        raise _Wrong(f"Request body is larger than {MAX_BODY_BYTES} bytes.", status=413)
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        param = where.strip("`.") or None
        raise _Wrong(f"Invalid type for '{param or 'body'}': {what}.", param, "invalid_type") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Wrong(f"We could not parse the JSON body of your request: {error}.") from None


def _check(asked: _Body) -> None:
    if not asked.model:
        raise _Wrong("you must provide a model parameter", "model")
    if asked.messages is None:
        raise _Wrong("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    if not asked.messages:
        what = "Expected an array with minimum length 1, but got an empty array instead."
        raise _Wrong(f"Invalid 'messages': empty array. {what}", "messages", "empty_array")
    limit = _limit(asked)
    if limit is not None and limit < 1:
        what = f"integer below minimum value. Expected a value >= 1, but got {limit} instead."
        raise _Wrong(f"Invalid 'max_tokens': {what}", "max_tokens", "integer_below_min_value")
    if asked.n not in (None, 1):
        raise _Wrong("Unsupported value: 'n' must be 1 here: one choice a call.", "n", "unsupported_value")


def _check_request_id(headers: RequestHeaders) -> None:
    name = headers.get(b"x-client-request-id")
    if name is not None and not (name.isascii() and len(name) <= _REQUEST_ID_LENGTH):
        raise _Wrong(f"X-Client-Request-Id must be ASCII, at most {_REQUEST_ID_LENGTH} characters.")


def _limit(asked: _Body) -> int | None:
    return asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens


def unread(headers: RequestHeaders, endpoint: str, model: str = "") -> CallRequest:
    """What is known of a request that is not read any further."""
    return CallRequest.unread(bearer_key(headers), endpoint, model, retry_count(headers))


# ------------------------------------------------------------------------------------------------- answers


class OpenAIChat:
    """`POST /v1/chat/completions`. `epoch_ns` is what to add to the provider's clock to get Unix time."""

    def __init__(self, epoch_ns: int = 0) -> None:
        self._epoch_ns = epoch_ns

    def parse(self, headers: RequestHeaders, body: bytes) -> CallRequest:
        """The call that a request asks for; Unreadable carries what OpenAI would answer."""
        asked = _Body()
        try:
            _check_request_id(headers)
            asked = _read(body)
            _check(asked)
        except _Wrong as wrong:
            raise Unreadable(unread(headers, "chat", asked.model or ""), wrong.status, wrong.error) from None
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

    def headers(self, call: Call, now_ns: int, headers: RequestHeaders) -> Headers:
        """Request id, processing time, and the caller's own request id again."""
        entry = call.entry
        own = [
            (b"x-request-id", b"req_%04x%012x" % (entry.run, entry.call)),
            (b"openai-processing-ms", b"%d" % ((now_ns - entry.arrived_ns) // NS_PER_MS)),
            *_FIXED_HEADERS,
        ]
        theirs = headers.get(b"x-client-request-id")
        return own if theirs is None else [*own, (b"x-client-request-id", theirs)]

    def invalid(self, call: Call, wrong: Unreadable) -> bytes:  # noqa: ARG002
        """The body of the answer to what could not be read."""
        return wrong.body

    def refusal(self, refusal: Refusal) -> tuple[Headers, bytes]:
        """Retry-After as the refusal has it, and the error body."""
        kind, code = _ERRORS[refusal.reason]
        param = "model" if refusal.reason is Reason.MODEL_NOT_FOUND else None
        return retry_fields(refusal), error_body(_message(refusal), kind, code, param)

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
        kind, code = _ERRORS[Reason.OVERLOADED]
        return b"data: " + error_body(_MESSAGES[Reason.OVERLOADED], kind, code) + b"\n\n"

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


# -------------------------------------------------------------------------------------------------- errors

_ERRORS: dict[Reason, tuple[str, str | None]] = {
    Reason.TOKENS: ("tokens", "rate_limit_exceeded"),
    Reason.INPUT_TOKENS: ("tokens", "rate_limit_exceeded"),
    Reason.OUTPUT_TOKENS: ("tokens", "rate_limit_exceeded"),
    Reason.REQUESTS: ("requests", "rate_limit_exceeded"),
    Reason.TOO_LARGE: ("tokens", "rate_limit_exceeded"),
    Reason.SLOTS: ("service_unavailable_error", "server_is_overloaded"),
    Reason.OVERLOADED: ("service_unavailable_error", "server_is_overloaded"),
    Reason.SERVER_ERROR: ("server_error", None),
    Reason.QUOTA: ("insufficient_quota", "insufficient_quota"),
    Reason.SLOW_DOWN: ("rate_limit_error", "slow_down"),
    Reason.KEY: ("invalid_request_error", "invalid_api_key"),
    Reason.MODEL_NOT_FOUND: ("invalid_request_error", "model_not_found"),
    Reason.INVALID: ("invalid_request_error", None),
}
"""`type` and `code` of OpenAI's error object."""

_MESSAGES: dict[Reason, str] = {
    Reason.SLOTS: "The server is currently overloaded with other requests. Sorry about that! Please retry.",
    Reason.OVERLOADED: "The requested model is temporarily overloaded. Please try again later.",
    Reason.SERVER_ERROR: "The server had an error while processing your request. Sorry about that!",
    Reason.QUOTA: "You exceeded your current quota, please check your plan and billing details.",
    Reason.SLOW_DOWN: "Your requests grew too fast. Please go back to your earlier rate and raise it slowly.",
    Reason.KEY: "Incorrect API key provided. Find yours at https://platform.openai.com/account/api-keys.",
    Reason.INVALID: "Invalid request.",
}


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error object; `kind` is its `type`."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def model_not_found(name: str) -> str:
    """The message for a model that is not served."""
    return f"The model `{name}` does not exist or you do not have access to it."


def _message(refusal: Refusal) -> str:
    model, shortage = refusal.call.request.model, refusal.shortage
    if refusal.reason is Reason.MODEL_NOT_FOUND:
        return model_not_found(model)
    if shortage is None:
        return _MESSAGES[refusal.reason]
    unit = "requests per min (RPM)" if shortage.limit is Reason.REQUESTS else "tokens per min (TPM)"
    where = f"for {model} in organization {ORGANIZATION} on {unit}"
    if shortage.wait_ns is None:
        numbers = f"Limit {shortage.capacity:.0f}, Requested {shortage.requested}"
        mend = "The input or output tokens must be reduced in order to run successfully."
        return f"Request too large {where}: {numbers}. {mend} {_MORE}"
    wait = go_duration(math.ceil(shortage.wait_ns / NS_PER_MS) * NS_PER_MS)
    numbers = f"Limit {shortage.per_minute:.0f}, Used {shortage.used:.0f}, Requested {shortage.requested}"
    return f"Rate limit reached {where}: {numbers}. Please try again in {wait}. {_MORE}"
