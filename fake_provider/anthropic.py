"""Anthropic's wire format: messages, plain and streamed, the count of a message's tokens, and errors.

Sources: https://platform.claude.com/docs/en/api/messages, …/errors and …/streaming. Fields that mean nothing
here are ignored. The official SDK runs against it unchanged (`tests/shell/test_provider_anthropic_sdk.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from fake_provider.budget import Headers
from fake_provider.call import Call, CallRequest, Reason, Refusal, Shortage
from fake_provider.wire import (
    MAX_BODY_BYTES,
    RequestHeaders,
    Unreadable,
    bearer_key,
    error_page,
    retry_count,
    retry_fields,
)

ENDPOINT = "messages"
ORGANIZATION = "org-fake"
_MORE = "For details, refer to: https://docs.claude.com/en/api/rate-limits."
_encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ requests


class _Block(msgspec.Struct):
    text: str | None = None


_Content = str | list[_Block]


class _Message(msgspec.Struct):
    role: str
    content: _Content


class _Body(msgspec.Struct):
    model: str | None = None
    messages: list[_Message] | None = None
    system: _Content | None = None
    max_tokens: int | None = None
    stream: bool | None = None


class _Wrong(Exception):
    """What is wrong with a request, in Anthropic's words."""

    def __init__(self, message: str, kind: str = "invalid_request_error", status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(kind, message)


_decode = msgspec.json.Decoder(_Body).decode


def _text(content: _Content | None) -> str:
    if isinstance(content, list):
        return "\n".join(block.text for block in content if block.text is not None)
    return content or ""


def _read(body: bytes) -> _Body:
    if len(body) > MAX_BODY_BYTES:
        raise _Wrong("Request exceeds the maximum size", "request_too_large", 413)
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        place = where.strip("`.").replace("[", ".").replace("]", "")
        raise _Wrong(f"{place}: {what}" if place else what) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Wrong(f"The request body is not valid JSON: {error}") from None


def _check(headers: RequestHeaders, asked: _Body, needs_limit: bool) -> None:
    if b"anthropic-version" not in headers:
        raise _Wrong("anthropic-version: header is required")
    if not asked.model:
        raise _Wrong("model: Field required")
    if asked.messages is None:
        raise _Wrong("messages: Field required")
    if not asked.messages:
        raise _Wrong("messages: at least one message is required")
    for i, message in enumerate(asked.messages):
        if message.role not in ("user", "assistant"):
            what = f'Unexpected role "{message.role:.40}". Allowed roles are "user" or "assistant".'
            raise _Wrong(f"messages.{i}.role: {what}")
    if needs_limit and asked.max_tokens is None:
        raise _Wrong("max_tokens: Field required")
    if asked.max_tokens is not None and asked.max_tokens < 1:
        raise _Wrong("max_tokens: Input should be greater than or equal to 1")


def _api_key(headers: RequestHeaders) -> str:
    return headers.get(b"x-api-key", b"").decode("latin-1").strip() or bearer_key(headers)


def unread(headers: RequestHeaders, endpoint: str = ENDPOINT, model: str = "") -> CallRequest:
    """What is known of a request that is not read any further."""
    return CallRequest.unread(_api_key(headers), endpoint, model, retry_count(headers))


# ------------------------------------------------------------------------------------------------- answers


class AnthropicMessages:
    """`POST /v1/messages`; `POST /v1/messages/count_tokens` reads the same body."""

    def parse(self, headers: RequestHeaders, body: bytes, *, needs_limit: bool = True) -> CallRequest:
        """The call that a request asks for; Unreadable carries what Anthropic would answer.

        `needs_limit`: whether `max_tokens` must be there.
        """
        asked = _Body()
        try:
            asked = _read(body)
            _check(headers, asked, needs_limit)
        except _Wrong as wrong:
            request = unread(headers, model=asked.model or "")
            raise Unreadable(request, wrong.status, wrong.body) from None
        messages = asked.messages or []
        texts = [_text(message.content) for message in messages]
        users = [text for text, message in zip(texts, messages, strict=True) if message.role == "user"]
        return CallRequest.from_texts(
            [_text(asked.system), *texts],
            users[-1] if users else "",
            api_key=_api_key(headers),
            model=asked.model or "",
            endpoint=ENDPOINT,
            max_tokens=asked.max_tokens,
            stream=bool(asked.stream),
            retry_count=retry_count(headers),
        )

    def headers(self, call: Call, now_ns: int, headers: RequestHeaders) -> Headers:  # noqa: ARG002
        """Request and organisation id."""
        return [
            (b"request-id", _request_id(call).encode()),
            (b"anthropic-organization-id", ORGANIZATION.encode()),
        ]

    def invalid(self, call: Call, wrong: Unreadable) -> bytes:
        """The body of the answer to what could not be read, with the request's id in it."""
        return _with_id(wrong.body, call)

    def refusal(self, refusal: Refusal) -> tuple[Headers, bytes]:
        """Retry-After as the refusal has it, and the error body (of a 502 a page, no JSON)."""
        if refusal.status == _PAGE:
            return [], error_page(refusal.status)
        details = {"error_code": "enforced_spend_limit_reached"} if refusal.reason is Reason.QUOTA else None
        body = error_body(_KINDS[refusal.reason], _message(refusal), details)
        return retry_fields(refusal), _with_id(body, refusal.call)

    def whole(self, call: Call) -> bytes:
        """The body of a complete plain answer."""
        content = [{"type": "text", "text": call.text(0, call.output_tokens)}]
        usage = _usage(call.request.input_tokens, call.output_tokens)
        return _encode(_answer(call, content, _stop_reason(call), usage))

    def frames(self, call: Call) -> MessageFrames:
        """The frames of a streamed answer."""
        return MessageFrames(call)


class MessageFrames:
    """The events of one stream: one text block, whose deltas are the tokens."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def piece(self, first: int, last: int) -> bytes:
        """The delta with those tokens; before the first token, the events that open message and block."""
        head = self._opening() if first == 0 else b""
        if last == first:
            return head
        # All words are plain ASCII letters: there is nothing to escape.
        return head + _DELTA % self._call.text(first, last).encode()

    def tail(self) -> bytes:
        """The end of the block, the reason with the cumulative usage, and the end of the message."""
        call = self._call
        delta = {"stop_reason": _stop_reason(call), "stop_sequence": None}
        usage = _usage(call.request.input_tokens, call.output_tokens)
        end = _event("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})
        return _BLOCK_STOP + end + _MESSAGE_STOP

    def error(self) -> bytes:
        """An error event, as overload shows once the headers are out; nothing comes after it."""
        body = error_body(_KINDS[Reason.OVERLOADED], _MESSAGES[Reason.OVERLOADED])
        return b"event: error\ndata: " + _with_id(body, self._call) + b"\n\n"

    def _opening(self) -> bytes:
        message = _answer(self._call, [], None, _usage(self._call.request.input_tokens, 1))
        start = _event("message_start", {"type": "message_start", "message": message})
        return start + _BLOCK_START + _PING


def _event(name: str, data: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(data))


_PING = _event("ping", {"type": "ping"})
_MESSAGE_STOP = _event("message_stop", {"type": "message_stop"})
_BLOCK_STOP = _event("content_block_stop", {"type": "content_block_stop", "index": 0})
_BLOCK_START = _event(
    "content_block_start",
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
)
_DELTA = _event(
    "content_block_delta",
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "%s"}},
)


def _answer(
    call: Call, content: list[dict[str, str]], stop_reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": f"msg_{call.entry.run:04x}{call.entry.call:012x}",
        "type": "message",
        "role": "assistant",
        "model": call.request.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _stop_reason(call: Call) -> str:
    return "max_tokens" if call.finish_reason == "length" else "end_turn"


def _request_id(call: Call) -> str:
    return f"req_{call.entry.run:04x}{call.entry.call:012x}"


# -------------------------------------------------------------------------------------------------- errors

_PAGE = 502
_KINDS: dict[Reason, str] = {
    Reason.TOKENS: "rate_limit_error",
    Reason.INPUT_TOKENS: "rate_limit_error",
    Reason.OUTPUT_TOKENS: "rate_limit_error",
    Reason.REQUESTS: "rate_limit_error",
    Reason.TOO_LARGE: "rate_limit_error",
    Reason.SLOTS: "overloaded_error",
    Reason.OVERLOADED: "overloaded_error",
    Reason.SERVER_ERROR: "api_error",
    Reason.QUOTA: "rate_limit_error",
    Reason.SLOW_DOWN: "rate_limit_error",
    Reason.PERMISSION: "permission_error",
    Reason.TIMEOUT: "timeout_error",
    Reason.CONTEXT: "invalid_request_error",
    Reason.KEY: "authentication_error",
    Reason.MODEL_NOT_FOUND: "not_found_error",
    Reason.INVALID: "invalid_request_error",
}
"""`type` of Anthropic's error object."""

_MESSAGES: dict[Reason, str] = {
    Reason.SLOTS: "Overloaded",
    Reason.OVERLOADED: "Overloaded",
    Reason.SERVER_ERROR: "Internal server error",
    Reason.QUOTA: "Your organization has reached its spend limit.",
    Reason.SLOW_DOWN: "Number of requests has grown too fast; this exceeds the acceleration limit. " + _MORE,
    Reason.PERMISSION: "Your API key does not have permission to use the specified resource.",
    Reason.TIMEOUT: "Request timed out",
    Reason.KEY: "invalid x-api-key",
    Reason.INVALID: "Invalid request",
}

_UNITS: dict[Reason, str] = {
    Reason.REQUESTS: "requests",
    Reason.TOKENS: "tokens",
    Reason.INPUT_TOKENS: "input tokens",
    Reason.OUTPUT_TOKENS: "output tokens",
}


def error_body(kind: str, message: str, details: dict[str, str] | None = None) -> bytes:
    """Anthropic's error object; `kind` is its `type`. Without a call there is no request id."""
    error: dict[str, Any] = {"details": details, "type": kind, "message": message}
    return _encode({"type": "error", "error": error, "request_id": None})


def not_found(what: str) -> bytes:
    """The body of a 404."""
    return error_body("not_found_error", what)


def tokens_body(request: CallRequest) -> bytes:
    """The answer of `POST /v1/messages/count_tokens`."""
    return _encode({"input_tokens": request.input_tokens})


def model_body(name: str) -> dict[str, Any]:
    """One model, as `GET /v1/models/{model}` has it."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }


def models_body(names: tuple[str, ...]) -> dict[str, Any]:
    """All models on one page, as `GET /v1/models` has them."""
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return {"data": [model_body(name) for name in names], "has_more": False, **ends}


def _with_id(body: bytes, call: Call) -> bytes:
    return body.removesuffix(b"null}") + b'"%s"}' % _request_id(call).encode()


def _message(refusal: Refusal) -> str:
    if refusal.reason is Reason.MODEL_NOT_FOUND:
        return f"model: {refusal.call.request.model}"
    if refusal.context_tokens is not None:
        request, most = refusal.call.request, refusal.context_tokens
        if request.input_tokens > most:
            return f"prompt is too long: {request.input_tokens} tokens > {most} maximum"
        asked = f"{request.input_tokens} + {request.max_tokens} > {most}"
        return f"input length and `max_tokens` exceed context limit: {asked}"
    if refusal.shortage is None:
        return _MESSAGES[refusal.reason]
    return _limit_message(refusal.shortage)


def _limit_message(shortage: Shortage) -> str:
    limit = f"{shortage.per_minute:,.0f} {_UNITS[shortage.limit]} per minute"
    where = f"This request would exceed the rate limit for your organization ({ORGANIZATION}) of {limit}."
    mend = "Please reduce the prompt length or the maximum tokens requested, or try again later."
    return f"{where} {_MORE} {mend}"
