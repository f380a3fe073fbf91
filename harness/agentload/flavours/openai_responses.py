"""OpenAI's responses: plain, streamed, and in the background (begun, then asked after until they have ended).

Source: https://platform.openai.com/docs/api-reference/responses, …/responses-streaming and
https://platform.openai.com/docs/guides/background.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from pydantic import Field

from agentload.flavours import Flavour, Heard, Progress, Standing, error_name
from agentload.flavours.openai_chat import quoted
from agentload.model import Arrival

LEAST_TOKENS = 16
"""The API takes no smaller `max_output_tokens`."""
_PROGRESS = {
    "queued": Progress.OPEN,
    "in_progress": Progress.OPEN,
    "completed": Progress.DONE,
    "incomplete": Progress.DONE,
    "failed": Progress.FAILED,
    "cancelled": Progress.FAILED,
}


class _Part(msgspec.Struct, gc=False):
    text: Any = None


class _Item(msgspec.Struct, gc=False):
    content: list[_Part] | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    error: Any = None
    output: list[_Item] | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: Any = None
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None


_decode = msgspec.json.Decoder(_Response).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class OpenaiResponses(Flavour):
    """OpenAI's responses, plain and streamed; with `background: true` begun, and asked after."""

    path: ClassVar[str | None] = "/responses"
    tail: ClassVar[str | None] = "/v1/responses"
    mark: ClassVar[tuple[str, str] | None] = ("object", "response")
    writes: ClassVar[frozenset[str]] = frozenset(
        {"model", "input", "max_output_tokens", "stream", "background"}
    )

    background: bool = False
    """Begin each response, and ask after it until it has ended; there are no streams then."""
    poll_s: float = Field(default=0.5, gt=0, le=60)
    """From an answer to the next question, in the background."""

    cancels: bool = True
    """A client that leaves says so: `POST …/{id}/cancel`. Nothing else ends a response in the background."""

    @property
    def streams(self) -> bool:
        """Not in the background."""
        return not self.background

    @property
    def asks_after_s(self) -> float | None:
        """Only in the background."""
        return self.poll_s if self.background else None

    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """`input` with one user message."""
        content = prompt.replace("\n", "\\n")  # words and line ends: all there is to quote
        declared = arrival.job.declared_output_tokens
        limit = "" if declared is None else f',"max_output_tokens":{max(declared, LEAST_TOKENS)}'
        how = ',"background":true' if self.background else ',"stream":true' if arrival.job.stream else ""
        asked = f'[{{"role":"user","content":"{content}"}}]'
        return f'{{"model":{quoted(model)},"input":{asked}{limit}{how}{self.more}}}'.encode()

    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:
        """A typed event; its type stands in the data, too, and that one counts."""
        event = _decode_event(data)
        match event.type or kind.decode("latin-1"):
            case "response.output_text.delta":
                return _say(event.delta, heard)
            case "response.completed" | "response.incomplete":
                heard.whole = heard.finished = True
                _count(event.response, heard)
            case "response.failed" | "response.cancelled":
                heard.fail(_why(event.response) or "response-failed")
            case "error":
                heard.fail(_error_of(event))
            case _:
                pass
        return False

    def read_whole(self, data: bytes | bytearray, heard: Heard) -> None:
        """A response that has ended."""
        response = _decode(data)
        if (why := _why(response)) is not None:
            heard.fail(why)
        _count(response, heard)
        for item in response.output or ():
            for part in item.content or ():
                _say(part.text, heard)
        if not response.output:
            heard.fail("answer-without-output")

    def cancel_at(self, path: str, name: str) -> tuple[str, str] | None:
        """As documented, if clients do so here."""
        return ("POST", f"{path}/{name}/cancel") if self.cancels else None

    def standing(self, data: bytes | bytearray) -> Standing:
        """By its `status`."""
        response = _decode(data)
        return Standing(response.id, _PROGRESS.get(response.status or ""), _why(response) or response.status)


def _say(text: object, heard: Heard) -> bool:
    if not (isinstance(text, str) and text):
        return False
    heard.texts.append(text)
    return True


def _count(response: _Response | None, heard: Heard) -> None:
    if response is not None and response.usage is not None:
        heard.count(response.usage.input_tokens, response.usage.output_tokens)


def _why(response: _Response | None) -> str | None:
    return None if response is None or response.error is None else error_name(response.error)


def _error_of(event: _Event) -> str:
    """As the API has it, `code` and `message` beside the type; some gateways put an object into it."""
    return error_name({"code": event.code, "message": event.message} if event.error is None else event.error)
