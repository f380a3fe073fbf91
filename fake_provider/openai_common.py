"""What OpenAI's endpoints have in common: headers, errors in its words, and unreadable requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from fake_provider.budget import Headers, go_duration
from fake_provider.call import Call, CallRequest, Reason, Refusal
from fake_provider.reply import NS_PER_MS
from fake_provider.wire import (
    MAX_BODY_BYTES,
    RequestHeaders,
    Unreadable,
    bearer_key,
    error_page,
    retry_count,
    retry_fields,
)

ORGANIZATION = "org-fake"
_MORE = "Visit https://platform.openai.com/account/rate-limits to learn more."
_FIXED_HEADERS: Headers = [
    (b"openai-organization", ORGANIZATION.encode()),
    (b"openai-version", b"2020-10-01"),
]
_REQUEST_ID_LENGTH = 512
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class Asked(Protocol):
    """A decoded body."""

    model: str | None


AskedT = TypeVar("AskedT", bound=Asked)


class Wrong(Exception):
    """What is wrong with a request, in OpenAI's words."""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error_body(message, "invalid_request_error", code, param)


def read(body: bytes, decode: Callable[[bytes], T]) -> T:
    """The decoded body. Raises Wrong."""
    if len(body) > MAX_BODY_BYTES:
        raise Wrong(f"Request body is larger than {MAX_BODY_BYTES} bytes.", status=413)
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        param = where.strip("`.") or None
        raise Wrong(f"Invalid type for '{param or 'body'}': {what}.", param, "invalid_type") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Wrong(f"We could not parse the JSON body of your request: {error}.") from None


def check_request_id(headers: RequestHeaders) -> None:
    """The caller's own request id, which must be short and plain. Raises Wrong."""
    name = headers.get(b"x-client-request-id")
    if name is not None and not (name.isascii() and len(name) <= _REQUEST_ID_LENGTH):
        raise Wrong(f"X-Client-Request-Id must be ASCII, at most {_REQUEST_ID_LENGTH} characters.")


def unread(headers: RequestHeaders, endpoint: str, model: str = "") -> CallRequest:
    """What is known of a request that is not read any further."""
    return CallRequest.unread(bearer_key(headers), endpoint, model, retry_count(headers))


def asked_of(
    headers: RequestHeaders,
    body: bytes,
    endpoint: str,
    decode: Callable[[bytes], AskedT],
    check: Callable[[AskedT], None],
) -> AskedT:
    """What a request asks for. Raises Unreadable, which carries what OpenAI would answer."""
    asked: AskedT | None = None
    try:
        check_request_id(headers)
        asked = read(body, decode)
        check(asked)
    except Wrong as wrong:
        model = asked.model if asked is not None else None
        raise Unreadable(unread(headers, endpoint, model or ""), wrong.status, wrong.error) from None
    return asked


class OpenAIWire:
    """What its wire formats share. `epoch_ns` is what to add to the provider's clock to get Unix time."""

    def __init__(self, epoch_ns: int = 0) -> None:
        self._epoch_ns = epoch_ns

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
        """Retry-After as the refusal has it, and the error body (of 502 and 504 a page, no JSON)."""
        if refusal.status in _PAGES:
            return [], error_page(refusal.status)
        kind, code = _ERRORS[refusal.reason]
        return retry_fields(refusal), error_body(
            _message(refusal), kind, refusal.code or code, _param(refusal)
        )


# -------------------------------------------------------------------------------------------------- errors

_PAGES = (502, 504)
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
    Reason.PERMISSION: ("request_forbidden", "unsupported_country_region_territory"),
    Reason.TIMEOUT: ("server_error", None),
    Reason.CONTEXT: ("invalid_request_error", "context_length_exceeded"),
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
    Reason.PERMISSION: "Country, region, or territory not supported",
    Reason.TIMEOUT: "Request timed out.",
    Reason.KEY: "Incorrect API key provided. Find yours at https://platform.openai.com/account/api-keys.",
    Reason.INVALID: "Invalid request.",
}


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error object; `kind` is its `type`."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def overloaded() -> tuple[str, str | None]:
    """Message and code of an overload, as it shows once the headers are out."""
    return _MESSAGES[Reason.OVERLOADED], _ERRORS[Reason.OVERLOADED][1]


def failed_message() -> str:
    """What is said of a call that broke."""
    return _MESSAGES[Reason.SERVER_ERROR]


def overloaded_body() -> bytes:
    """The same as an error object."""
    kind, code = _ERRORS[Reason.OVERLOADED]
    return error_body(_MESSAGES[Reason.OVERLOADED], kind, code)


def model_not_found(name: str) -> str:
    """The message for a model that is not served."""
    return f"The model `{name}` does not exist or you do not have access to it."


def _param(refusal: Refusal) -> str | None:
    if refusal.reason is Reason.MODEL_NOT_FOUND:
        return "model"
    if refusal.reason is Reason.CONTEXT:
        return "input" if refusal.call.request.endpoint == "responses" else "messages"
    return None


def _message(refusal: Refusal) -> str:
    model, shortage = refusal.call.request.model, refusal.shortage
    if refusal.reason is Reason.MODEL_NOT_FOUND:
        return model_not_found(model)
    if refusal.context_tokens is not None:
        request, most = refusal.call.request, refusal.context_tokens
        asked = (
            f"{request.most_tokens} tokens ({request.input_tokens} in the messages and the rest to answer)"
        )
        return f"This model's maximum context length is {most} tokens. However, you requested {asked}."
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
