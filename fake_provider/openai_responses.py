"""OpenAI's responses, plain and streamed; those in the background are kept by `openai_background`.

Source: https://platform.openai.com/docs/api-reference/responses and …/responses-streaming. Fields that mean
nothing here are ignored.
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
    failed_message,
    overloaded,
)
from fake_provider.wire import RequestHeaders, bearer_key, retry_count

ENDPOINT = "responses"
_LEAST_TOKENS = 16
_encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ requests


class _Part(msgspec.Struct):
    text: str | None = None


class _Item(msgspec.Struct):
    role: str | None = None
    """None: not a message (the output of a tool, say)."""
    content: str | list[_Part] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text is not None)
        return self.content or ""


class _Body(msgspec.Struct):
    model: str | None = None
    input: str | list[_Item] | None = None
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    background: bool | None = None
    store: bool | None = None

    def items(self) -> list[_Item]:
        if isinstance(self.input, list):
            return self.input
        return [_Item(role="user", content=self.input)]


_decode = msgspec.json.Decoder(_Body).decode


def _check(asked: _Body) -> None:
    if not asked.model:
        raise Wrong("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    if not asked.input:
        raise Wrong("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    limit = asked.max_output_tokens
    if limit is not None and limit < _LEAST_TOKENS:
        what = f"integer below minimum value. Expected a value >= {_LEAST_TOKENS}, but got {limit} instead."
        text = f"Invalid 'max_output_tokens': {what}"
        raise Wrong(text, "max_output_tokens", "integer_below_min_value")
    if asked.background and asked.store is False:
        raise Wrong("Background mode requires 'store' to be true.", "background", "unsupported_value")
    if asked.background and asked.stream:
        raise Wrong(
            "Unsupported value: 'stream' must be false in the background.", "stream", "unsupported_value"
        )


def in_background(body: bytes) -> bool:
    """Whether a request asks for that (and can be read)."""
    if b'"background"' not in body:
        return False
    try:
        return bool(_decode(body).background)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


# ------------------------------------------------------------------------------------------------- answers


class OpenAIResponses(OpenAIWire):
    """`POST /v1/responses`."""

    def parse(self, headers: RequestHeaders, body: bytes) -> CallRequest:
        """The call that a request asks for; Unreadable carries what OpenAI would answer."""
        asked = asked_of(headers, body, ENDPOINT, _decode, _check)
        texts = [(item.role, item.text()) for item in asked.items()]
        users = [text for role, text in texts if role == "user"]
        return CallRequest.from_texts(
            [asked.instructions or "", *(text for _, text in texts)],
            users[-1] if users else "",
            api_key=bearer_key(headers),
            model=asked.model or "",
            endpoint=ENDPOINT,
            max_tokens=asked.max_output_tokens,
            stream=bool(asked.stream),
            retry_count=retry_count(headers),
        )

    def whole(self, call: Call) -> bytes:
        """The body of a complete plain answer."""
        return _encode(self._ended(call))

    def frames(self, call: Call) -> ResponseFrames:
        """The frames of a streamed answer."""
        return ResponseFrames(call, self._response(call), self._ended(call))

    def name(self, call: Call) -> str:
        """Its id."""
        return f"resp_{_number(call)}"

    def kept(self, call: Call, status: str) -> bytes:
        """The body of a response in the background, at one of the states `queued`, `in_progress`, `completed`
        (or incomplete, as the call is), `failed` and `cancelled`."""
        response = self._ended(call) if status == "completed" else self._response(call) | {"status": status}
        if status == "failed":
            response["error"] = {"code": "server_error", "message": failed_message()}
        return _encode(response | {"background": True, "store": True})

    def _ended(self, call: Call) -> dict[str, Any]:
        """The response as it is at its end."""
        whole = call.finish_reason == "stop"
        status = "completed" if whole else "incomplete"
        ended_ns = 0 if call.timing is None else call.timing.end_ns
        return {
            **self._response(call),
            "status": status,
            "completed_at": (ended_ns + self._epoch_ns) // NS if whole else None,
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": [_message(call, status, [_part(call.text(0, call.output_tokens))])],
            "usage": _usage(call),
        }

    def _response(self, call: Call) -> dict[str, Any]:
        """The response as it is at its start."""
        entry = call.entry
        started_ns = entry.arrived_ns if entry.started_ns is None else entry.started_ns
        return {
            "id": self.name(call),
            "object": "response",
            "created_at": (started_ns + self._epoch_ns) // NS,
            "status": "in_progress",
            "background": False,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": call.request.max_tokens,
            "metadata": {},
            "model": call.request.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
            "user": None,
        }


class ResponseFrames:
    """The events of one stream: one message with one part, whose deltas are the tokens. They are numbered."""

    def __init__(self, call: Call, started: dict[str, Any], ended: dict[str, Any]) -> None:
        self._call = call
        self._started = started
        self._ended = ended
        self._sequence = 0
        item = f"msg_{_number(call)}".encode()
        self._before = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
        self._before += b'"item_id":"%s","output_index":0,"content_index":0,"logprobs":[],' % item

    def piece(self, first: int, last: int) -> bytes:
        """The delta with those tokens; before the first token, the events that open response and message."""
        head = self._opening() if first == 0 else b""
        if last == first:
            return head
        # All words are plain ASCII letters: there is nothing to escape.
        delta = b'"sequence_number":%d,"delta":"%s"}\n\n'
        text = self._call.text(first, last).encode()
        return head + self._before + delta % (self._next(), text)

    def tail(self) -> bytes:
        """The ends of text, part and message, and the whole response."""
        [message] = self._ended["output"]
        [part] = message["content"]
        status = self._ended["status"]
        return b"".join(
            (
                self._in_part("output_text.done", text=part["text"], logprobs=[]),
                self._in_part("content_part.done", part=part),
                self._event("response.output_item.done", output_index=0, item=message),
                self._event(f"response.{status}", response=self._ended),
            )
        )

    def error(self) -> bytes:
        """An error event, as overload shows once the headers are out; nothing comes after it."""
        message, code = overloaded()
        return self._event("error", code=code, message=message, param=None)

    def _opening(self) -> bytes:
        message = _message(self._call, "in_progress", [])
        return b"".join(
            (
                self._event("response.created", response=self._started),
                self._event("response.in_progress", response=self._started),
                self._event("response.output_item.added", output_index=0, item=message),
                self._in_part("content_part.added", part=_part("")),
            )
        )

    def _in_part(self, name: str, **fields: object) -> bytes:
        item = f"msg_{_number(self._call)}"
        return self._event(f"response.{name}", item_id=item, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        data = _encode({"type": kind, "sequence_number": self._next(), **fields})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)

    def _next(self) -> int:
        number = self._sequence
        self._sequence += 1
        return number


def _number(call: Call) -> str:
    return f"{call.entry.run:04x}{call.entry.call:012x}"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _message(call: Call, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    name = f"msg_{_number(call)}"
    return {"id": name, "type": "message", "status": status, "role": "assistant", "content": content}


def _usage(call: Call) -> dict[str, Any]:
    prompt, answer = call.request.input_tokens, call.output_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + answer,
    }
