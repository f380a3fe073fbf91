"""OpenAI's chat completions.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from agentload.flavours import Flavour, Heard, error_name
from agentload.model import Arrival, Job

_STREAM = ',"stream":true,"stream_options":{"include_usage":true}'


class _Delta(msgspec.Struct, gc=False):
    content: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Reply(msgspec.Struct, gc=False):
    """What is read of a completion, or of a chunk of one."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Reply).decode


class OpenaiChat(Flavour):
    """OpenAI's chat completions, plain and streamed: what a target speaks that does not say."""

    path: ClassVar[str | None] = "/chat/completions"
    tail: ClassVar[str | None] = "/chat/completions"
    mark: ClassVar[tuple[str, str] | None] = ("object", "chat.completion")
    writes: ClassVar[frozenset[str]] = frozenset(
        {"model", "messages", "max_tokens", "stream", "stream_options"}
    )

    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """`messages` with one user message."""
        return chat_body(prompt, arrival.job, model, self.more)

    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:
        """A chunk, or `[DONE]`."""
        if data == b"[DONE]":
            heard.whole = True
            return False
        reply = _decode(data)
        if kind == b"error" and reply.error is None:
            heard.fail("error-event")
        return _take(reply, heard)

    def read_whole(self, data: bytes | bytearray, heard: Heard) -> None:
        """A completion."""
        reply = _decode(data)
        _take(reply, heard)
        if not reply.choices:
            heard.fail("answer-without-choices")


def chat_body(prompt: str, job: Job, model: str, more: str = "") -> bytes:
    """One user message. `prompt`: plain words and line ends; `more`: fields as they follow others in JSON."""
    content = prompt.replace("\n", "\\n")  # all there is to quote
    declared = job.declared_output_tokens
    limit = "" if declared is None else f',"max_tokens":{declared}'
    stream = _STREAM if job.stream else ""
    messages = f'[{{"role":"user","content":"{content}"}}]'
    return f'{{"model":{quoted(model)},"messages":{messages}{limit}{stream}{more}}}'.encode()


@lru_cache
def quoted(text: str) -> str:
    """As JSON."""
    return msgspec.json.encode(text).decode()


def _take(reply: _Reply, heard: Heard) -> bool:
    """Note what a chunk or a whole completion says; True when there was text in it."""
    if reply.error is not None:
        heard.fail(error_name(reply.error))
    if reply.usage is not None:
        heard.count(reply.usage.prompt_tokens, reply.usage.completion_tokens)
    said = False
    for choice in reply.choices or ():
        part = choice.delta or choice.message
        if part is not None and isinstance(part.content, str) and part.content:
            heard.texts.append(part.content)
            said = True
        heard.finished = heard.finished or choice.finish_reason is not None
    return said
