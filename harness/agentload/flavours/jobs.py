"""Work that is accepted first and asked after later: POST, 202 with an id or a Location, GET until it ended.

The names are those of the reference gateway's `/v1/jobs` unless the target says others.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AfterValidator, Field

from agentload.flavours import Flavour, Heard, Progress, Standing
from agentload.flavours._places import count_at, number_at, place, text_at
from agentload.flavours._template import check, fill
from agentload.flavours.openai_chat import chat_body
from agentload.model import Arrival, Noun

Place = Annotated[str, AfterValidator(place)]
Template = Annotated[dict[str, Any], AfterValidator(check)]


def _is_poll(path: str) -> str:
    if not path.startswith("/") or path.count("{id}") != 1 or not path.isprintable() or " " in path:
        raise ValueError("must be a path with {id} in it, such as /v1/jobs/{id}")
    return path


def _is_field(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("must be the name of a header field, such as Idempotency-Key")
    return name


def _is_cancel(text: str) -> str:
    method, _, path = text.partition(" ")
    if method not in ("DELETE", "POST", "PUT", "PATCH"):
        raise ValueError("must be a method and a path with {id} in it, such as DELETE /v1/jobs/{id}")
    return f"{method} {_is_poll(path)}"


class Names(Noun):
    """`jobs:` of a target file, each name as that gateway has it:

    flavour: jobs
    path: /predictions
    poll_s: 0.5
    jobs:
      body: {input: {prompt: "{prompt}", max_tokens: "{max_tokens}"}}
      poll: /predictions/{id}
      state: status
      done: [succeeded]
      text: output
    """

    body: Template | None = None
    """As in `http:`; None: a job of one chat step."""
    poll: Annotated[str, AfterValidator(_is_poll)] | None = None
    """Where a job is asked after; None: at its id below the path where it was posted, or where the `Location`
    of the 202 says if there is no id in its body."""
    cancel: Annotated[str, AfterValidator(_is_cancel)] | None = None
    """How a client that leaves calls its job off: `DELETE /predictions/{id}`, or `POST` and a path. None: it
    cannot. (Our own gateway's is DELETE.)"""
    id: Place = "id"
    state: Place = "state"
    done: tuple[str, ...] = Field(default=("completed",), min_length=1)
    """States in which the result is there. A state that is in none of these lists is one on the way."""
    failed: tuple[str, ...] = ("failed", "cancelled")
    expired: tuple[str, ...] = ("expired",)
    reason: Place = "reason"
    """Where an ended job says why."""
    text: Place = "result.choices.0.message.content"
    input_tokens: Place | None = "result.usage.prompt_tokens"
    output_tokens: Place | None = "result.usage.completion_tokens"
    key: Annotated[str, AfterValidator(_is_field)] | None = None
    """The header field with a durable job's idempotency key; None: it knows no job that is posted again."""
    eta_s: Place | None = "eta_s"
    """Where an answer says in how many seconds the job will have ended."""
    position: Place | None = "position"
    """Where it says which place the job has in the queue, 1 for who is next."""


class Jobs(Flavour):
    """Work accepted with a 202 and an id, asked after until it has ended; the target says the names."""

    path: ClassVar[str | None] = "/jobs"
    tail: ClassVar[str | None] = "/v1/jobs"

    jobs: Names = Names()
    poll_s: float = Field(default=0.25, gt=0, le=60)
    """From an answer to the next question."""

    @property
    def streams(self) -> bool:
        """Never."""
        return False

    @property
    def asks_after_s(self) -> float | None:
        """Always."""
        return self.poll_s

    @property
    def takes_steps(self) -> bool:
        """Where the target says no names of its own: then it is the reference gateway's protocol."""
        return self.jobs == Names()

    @property
    def key_field(self) -> str | None:
        """As the target says, or the protocol."""
        return super().key_field if self.takes_steps else self.jobs.key

    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """The template, filled in, or a job of one chat step."""
        if self.jobs.body is not None:
            return msgspec.json.encode(fill(self.jobs.body, prompt, arrival, model) | self.body)
        plain = msgspec.structs.replace(arrival.job, stream=False)
        step = {"chat": msgspec.Raw(chat_body(prompt, plain, model))}
        who = {"workflow": arrival.job.workflow, "service_class": arrival.service_class}
        return msgspec.json.encode({"steps": [step], **who, **self.body})

    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:  # noqa: ARG002
        """There are none."""
        heard.fail("unasked-stream")
        return False

    def read_whole(self, data: bytes | bytearray, heard: Heard) -> None:
        """The result of a job that is done."""
        answer, names = msgspec.json.decode(data), self.jobs
        text = text_at(answer, names.text)
        if text is None:
            heard.fail("answer-without-text")
        else:
            heard.texts.append(text)
        heard.count(
            None if names.input_tokens is None else count_at(answer, names.input_tokens),
            None if names.output_tokens is None else count_at(answer, names.output_tokens),
        )

    def standing(self, data: bytes | bytearray) -> Standing:
        """By its state."""
        answer, names = msgspec.json.decode(data), self.jobs
        state = text_at(answer, names.state)
        reason = text_at(answer, names.reason) or state
        return Standing(
            text_at(answer, names.id),
            self._progress(state),
            reason,
            None if names.eta_s is None else number_at(answer, names.eta_s),
            None if names.position is None else count_at(answer, names.position),
        )

    def poll_path(self, path: str, name: str) -> str:
        """As the target says it, or below the path."""
        poll = self.jobs.poll
        return super().poll_path(path, name) if poll is None else poll.replace("{id}", name)

    def cancel_at(self, path: str, name: str) -> tuple[str, str] | None:
        """As the target says, or the protocol."""
        if self.takes_steps:
            return "DELETE", self.poll_path(path, name)
        if self.jobs.cancel is None:
            return None
        method, _, where = self.jobs.cancel.partition(" ")
        return method, where.replace("{id}", name)

    def _progress(self, state: str | None) -> Progress | None:
        if not state:
            return None
        names = self.jobs
        for progress, states in (
            (Progress.DONE, names.done),
            (Progress.FAILED, names.failed),
            (Progress.EXPIRED, names.expired),
        ):
            if state in states:
                return progress
        return Progress.OPEN
