"""Anthropic's messages.

Sources: https://platform.claude.com/docs/en/api/messages, …/errors and …/streaming.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from agentload.flavours import Fields, Flavour, Heard, error_name
from agentload.flavours.openai_chat import quoted
from agentload.model import Arrival

VERSION = "2023-06-01"
UNDECLARED_TOKENS = 4096
"""`max_tokens` where the profile says none: the API demands one."""


class _Block(msgspec.Struct, gc=False):
    text: Any = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None

    def prompt_tokens(self) -> int | None:
        """`input_tokens` leaves out what was cached."""
        if self.input_tokens is None:
            return None
        cached = (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)
        return self.input_tokens + cached


class _Message(msgspec.Struct, gc=False):
    content: list[_Block] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Message).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class AnthropicMessages(Flavour):
    """Anthropic's messages, plain and streamed; errors are named by their type."""

    path: ClassVar[str | None] = "/messages"
    tail: ClassVar[str | None] = "/v1/messages"
    mark: ClassVar[tuple[str, str] | None] = ("type", "message")
    identity: ClassVar[Fields] = (("x-api-key", "{tenant}"), ("X-Tenant", "{tenant}"))
    fields: ClassVar[Fields] = (("anthropic-version", VERSION),)
    writes: ClassVar[frozenset[str]] = frozenset({"model", "messages", "max_tokens", "stream"})

    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """`messages` with one user message."""
        content = prompt.replace("\n", "\\n")  # words and line ends: all there is to quote
        limit = arrival.job.declared_output_tokens or UNDECLARED_TOKENS
        stream = ',"stream":true' if arrival.job.stream else ""
        messages = f'[{{"role":"user","content":"{content}"}}]'
        start = f'{{"model":{quoted(model)},"max_tokens":{limit},"messages":{messages}'
        return f"{start}{stream}{self.more}}}".encode()

    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:
        """A typed event; its type stands in the data, too, and that one counts."""
        event = _decode_event(data)
        match event.type or kind.decode("latin-1"):
            case "content_block_delta":
                return event.delta is not None and _say(event.delta.text, heard)
            case "message_start":
                usage = None if event.message is None else event.message.usage
                if usage is not None:  # its count of output is of the first token only
                    heard.count(usage.prompt_tokens(), None)
            case "message_delta":
                heard.finished = True
                if event.usage is not None:
                    heard.count(event.usage.prompt_tokens(), event.usage.output_tokens)
            case "message_stop":
                heard.whole = True
            case "error":
                heard.fail(error_name(event.error))
            case _:
                pass
        return False

    def read_whole(self, data: bytes | bytearray, heard: Heard) -> None:
        """A message."""
        message = _decode(data)
        if message.error is not None:
            heard.fail(error_name(message.error))
        if message.usage is not None:
            heard.count(message.usage.prompt_tokens(), message.usage.output_tokens)
        for block in message.content or ():
            _say(block.text, heard)
        if message.content is None:
            heard.fail("answer-without-content")


def _say(text: object, heard: Heard) -> bool:
    if not (isinstance(text, str) and text):
        return False
    heard.texts.append(text)
    return True
