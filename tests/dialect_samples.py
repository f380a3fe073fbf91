"""What a provider sends in each of the gateway's dialects: pieces of streams, and whole answers."""

from __future__ import annotations

import json
from typing import Any

from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import Chat
from agentload.gateway.dialects.messages import Messages
from agentload.gateway.dialects.responses import Responses

CHAT, MESSAGES, RESPONSES = Chat(), Messages(), Responses()
ALL = (CHAT, MESSAGES, RESPONSES)


def event(kind: str = "", /, **body: Any) -> bytes:
    name = f"event: {kind}\n" if kind else ""
    return f"{name}data: {json.dumps({'type': kind, **body} if kind else body)}\n\n".encode()


DELTAS: dict[Dialect, Any] = {
    CHAT: lambda text: event(choices=[{"delta": {"content": text}}]),
    MESSAGES: lambda text: event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
    RESPONSES: lambda text: event("response.output_text.delta", delta=text, logprobs=[]),
}
OPENINGS = {
    CHAT: b"",
    MESSAGES: event(
        "message_start", message={"content": [], "usage": {"input_tokens": 7, "output_tokens": 1}}
    ),
    RESPONSES: event("response.created", response={"status": "in_progress", "usage": None, "error": None}),
}
ENDINGS = {
    CHAT: event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3}) + b"data: [DONE]\n\n",
    MESSAGES: event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
    + event("message_stop"),
    RESPONSES: event(
        "response.completed",
        response={"status": "completed", "usage": {"input_tokens": 7, "output_tokens": 3}},
    ),
}
ERRORS = {
    CHAT: [event(error={"code": "overloaded", "message": "m"})],
    MESSAGES: [event("error", error={"type": "overloaded", "message": "m"})],
    RESPONSES: [
        event("error", code="overloaded", message="m", param=None),
        event("error", error={"code": "overloaded", "message": "m"}),
        event(
            "response.failed", response={"status": "failed", "error": {"code": "overloaded", "message": "m"}}
        ),
    ],
}


WHOLE: dict[Dialect, dict[str, Any]] = {
    CHAT: {"choices": [{"message": {"content": "one two"}}]},
    MESSAGES: {"type": "message", "content": [{"type": "text", "text": "one two"}]},
    RESPONSES: {"status": "completed", "error": None, "output": [{"content": [{"text": "one two"}]}]},
}
