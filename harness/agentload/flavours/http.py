"""Any API that takes JSON and answers with JSON, or with a stream: what and where is the target's to say."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, cast

import msgspec
from pydantic import AfterValidator, Field, model_validator

from agentload.flavours import Flavour, Framing, Heard, error_name
from agentload.flavours._places import at, count_at, place, text_at
from agentload.flavours._template import check, fill
from agentload.model import Arrival, Noun

Place = Annotated[str, AfterValidator(place)]
Template = Annotated[dict[str, Any], AfterValidator(check)]


class Stream(Noun):
    """`stream:` below `http:`, of an API that streams:

    stream: {events: sse, ask: {stream: true}, text: delta.text, ended: finish_reason, done: "[DONE]"}

    Without `done` and `ended` a stream is whole when its HTTP message is: a gateway that closes it properly
    after half of it is found out by our provider's ledger alone.
    """

    events: Framing = Framing.SSE
    ask: dict[str, Any] = Field(default_factory=dict[str, Any])
    """More fields of the body, each in its section, that ask for a stream; none: it always streams."""
    text: Place | None = None
    """Where an event has its text; None: the event is its text."""
    done: str | None = None
    """The data, or the type, of an event that ends the stream."""
    ended: Place | None = None
    """Where an event says that the model has said all: anything but null, false and nothing. Without `done`
    it ends the stream."""
    error: Place = "error"
    """Where an event says that it has failed."""
    input_tokens: Place | None = None
    output_tokens: Place | None = None
    """Counts; the last ones count."""

    @model_validator(mode="after")
    def _text_is_all_there_is(self) -> Self:
        named = self.model_fields_set & {"text", "done", "ended", "error", "input_tokens", "output_tokens"}
        if self.events is Framing.TEXT and named:
            raise ValueError(f"has events: chunks, which are nothing but text: leave out {min(named)}")
        if self.text is None and (self.ended or self.input_tokens or self.output_tokens):
            raise ValueError("must name the place of the text where it names others")
        return self

    def read(self, kind: bytes, data: bytes, heard: Heard) -> bool:
        """Understand one event; whether text came with it. Raises NOT_JSON."""
        if self.done is not None and self.done.encode() in (data, kind):
            heard.whole = heard.finished = True
            return False
        heard.finished = heard.finished or (self.done is None and self.ended is None)
        if self.text is None:
            text = data.decode("utf-8", "replace")
        else:
            event = msgspec.json.decode(data)
            self._note(event, heard)
            text = text_at(event, self.text) or ""
        if text:
            heard.texts.append(text)
        return bool(text)

    def _note(self, event: object, heard: Heard) -> None:
        """All but the text."""
        if (error := at(event, self.error)) is not None:
            heard.fail(error_name(error))
        if self.ended is not None and at(event, self.ended) not in (None, False, "", 0):
            heard.finished, heard.whole = True, heard.whole or self.done is None
        heard.count(
            None if self.input_tokens is None else count_at(event, self.input_tokens),
            None if self.output_tokens is None else count_at(event, self.output_tokens),
        )


class Call(Noun):
    """`http:` of a target file:

    flavour: http
    path: /generate
    http:
      body: {inputs: "{prompt}", parameters: {max_new_tokens: "{max_tokens}"}}
      text: generated_text
      output_tokens: details.generated_tokens
    """

    method: Literal["POST", "PUT", "PATCH"] = "POST"
    body: Template
    """May hold `{prompt}`, `{max_tokens}`, `{model}`, `{tenant}`, `{class}` and `{workflow}`; the first must
    be there. What is put in cannot leave its text."""
    text: Place
    """Where the text of the answer is."""
    input_tokens: Place | None = None
    output_tokens: Place | None = None
    stream: Stream | None = None
    """None: it has no streams."""


class Http(Flavour):
    """Any API that takes JSON and answers with JSON or with a stream; the target says what and where."""

    path: ClassVar[str | None] = None

    http: Call

    @property
    def method(self) -> str:
        """As the target says."""
        return self.http.method

    @property
    def streams(self) -> bool:
        """Where the target says how."""
        return self.http.stream is not None

    @property
    def only_streams(self) -> bool:
        """Where nothing is said by which it is asked for a stream."""
        return self.http.stream is not None and not self.http.stream.ask

    @property
    def framing(self) -> Framing:
        """As the target says."""
        return Framing.SSE if self.http.stream is None else self.http.stream.events

    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """The template, filled in."""
        body, stream = fill(self.http.body, prompt, arrival, model), self.http.stream
        if stream is not None and arrival.job.stream:
            body = _merged(body, stream.ask)
        return msgspec.json.encode(body | self.body)

    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:
        """As the target says."""
        if self.http.stream is None:
            heard.fail("unasked-stream")
            return False
        return self.http.stream.read(kind, data, heard)

    def read_whole(self, data: bytes | bytearray, heard: Heard) -> None:
        """Text and counts, each from its place."""
        answer, call = msgspec.json.decode(data), self.http
        text, error = text_at(answer, call.text), at(answer, "error")
        if text is not None:
            heard.texts.append(text)
        else:
            heard.fail("answer-without-text" if error is None else error_name(error))
        heard.count(
            None if call.input_tokens is None else count_at(answer, call.input_tokens),
            None if call.output_tokens is None else count_at(answer, call.output_tokens),
        )


def _merged(body: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """With more fields, each in its section."""
    merged = dict(body)
    for key, value in more.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merged(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        merged[key] = value
    return merged
