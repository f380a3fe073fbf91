"""The official SDKs side by side: the same request in each one's words, and what came of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import anthropic
import msgspec
import openai

from fake_provider.marker import Marker, message

PROMPT_TOKENS = 30


class Said(msgspec.Struct, frozen=True):
    """A whole answer as an SDK hands it on."""

    text: str
    input_tokens: int
    output_tokens: int
    retries: int
    """That the SDK made, by its own count."""
    request_id: str | None


def prompt(seq: int, output: int) -> str:
    """A marked message of 30 tokens."""
    return message(Marker(run=0, tenant=1, seq=seq, attempt=0, output_tokens=output), PROMPT_TOKENS)


class Speaker(ABC):
    """One endpoint of one SDK, unchanged but for where it calls."""

    errors: ClassVar[ModuleType]
    """The SDK, whose exceptions have the same names in both."""
    endpoint: ClassVar[str]
    """Its name in the provider's ledger."""

    def __init__(self, port: int, *, max_retries: int = 2, **headers: str) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.options: dict[str, Any] = {"max_retries": max_retries, "default_headers": headers, "timeout": 20}

    @abstractmethod
    def ask(self, seq: int = 1, *, output: int = 20, max_tokens: int = 64) -> Said:
        """A plain call."""

    @abstractmethod
    def words(self, seq: int = 1, *, output: int = 20) -> Iterator[str]:
        """The pieces of a streamed answer as they come; closing the iterator leaves."""


class _OpenAI(Speaker):
    errors = openai

    @contextmanager
    def client(self) -> Iterator[openai.OpenAI]:
        with openai.OpenAI(base_url=f"{self.root}/v1", api_key="sk-tenant", **self.options) as client:
            yield client


class Chat(_OpenAI):
    endpoint = "chat"

    def ask(self, seq: int = 1, *, output: int = 20, max_tokens: int = 64) -> Said:
        with self.client() as client:
            raw = client.chat.completions.with_raw_response.create(
                model="m",
                messages=[{"role": "user", "content": prompt(seq, output)}],
                max_tokens=max_tokens,
            )
        answer = raw.parse()
        assert answer.usage is not None
        counts = answer.usage.prompt_tokens, answer.usage.completion_tokens
        text = answer.choices[0].message.content or ""
        return Said(text, *counts, raw.retries_taken, answer._request_id)

    def words(self, seq: int = 1, *, output: int = 20) -> Iterator[str]:
        with (
            self.client() as client,
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": prompt(seq, output)}], stream=True
            ) as stream,
        ):
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content


class Responses(_OpenAI):
    endpoint = "responses"

    def ask(self, seq: int = 1, *, output: int = 20, max_tokens: int = 64) -> Said:
        with self.client() as client:
            raw = client.responses.with_raw_response.create(
                model="m", input=prompt(seq, output), max_output_tokens=max_tokens
            )
        answer = raw.parse()
        assert answer.usage is not None
        counts = answer.usage.input_tokens, answer.usage.output_tokens
        return Said(answer.output_text, *counts, raw.retries_taken, answer._request_id)

    def words(self, seq: int = 1, *, output: int = 20) -> Iterator[str]:
        with (
            self.client() as client,
            client.responses.create(model="m", input=prompt(seq, output), stream=True) as stream,
        ):
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta


class Messages(Speaker):
    errors = anthropic
    endpoint = "messages"

    @contextmanager
    def client(self) -> Iterator[anthropic.Anthropic]:
        with anthropic.Anthropic(base_url=self.root, api_key="sk-ant-tenant", **self.options) as client:
            yield client

    def ask(self, seq: int = 1, *, output: int = 20, max_tokens: int = 64) -> Said:
        with self.client() as client:
            raw = client.messages.with_raw_response.create(
                model="m",
                messages=[{"role": "user", "content": prompt(seq, output)}],
                max_tokens=max_tokens,
            )
        answer = raw.parse()
        [block] = answer.content
        assert block.type == "text"
        counts = answer.usage.input_tokens, answer.usage.output_tokens
        return Said(block.text, *counts, raw.retries_taken, answer._request_id)

    def words(self, seq: int = 1, *, output: int = 20) -> Iterator[str]:
        with (
            self.client() as client,
            client.messages.create(
                model="m",
                max_tokens=max(64, output),
                messages=[{"role": "user", "content": prompt(seq, output)}],
                stream=True,
            ) as stream,
        ):
            for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    yield event.delta.text


SPEAKERS: tuple[type[Speaker], ...] = (Chat, Messages, Responses)
