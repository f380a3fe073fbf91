"""Any API that takes JSON and answers with JSON: what is sent and where the answer stands is the target's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import AfterValidator

from agentload.flavours import Flavour, Heard, error_name
from agentload.flavours._places import at, count_at, place, text_at
from agentload.flavours._template import check, fill
from agentload.model import Arrival, Noun

Place = Annotated[str, AfterValidator(place)]
Template = Annotated[dict[str, Any], AfterValidator(check)]


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


class Http(Flavour):
    """Any API that takes JSON and answers with JSON, without streams; the target says what and where."""

    path: ClassVar[str | None] = None

    http: Call

    @property
    def method(self) -> str:
        """As the target says."""
        return self.http.method

    @property
    def streams(self) -> bool:
        """Never."""
        return False

    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """The template, filled in."""
        return msgspec.json.encode(fill(self.http.body, prompt, arrival, model) | self.body)

    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:  # noqa: ARG002
        """There are none."""
        heard.fail("unasked-stream")
        return False

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
