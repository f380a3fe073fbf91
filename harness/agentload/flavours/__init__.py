"""In which words a gateway is asked and answers: its API's flavour. PURE.

One flavour per file, found by its name; the fields of its class are the keys that it adds to a target file.
What answers have in common (statuses, Retry-After, endings, whose answer it is) is read in `client.wire`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import msgspec
from pydantic import Field

from agentload.model import Arrival, JobOrder, JobStep, Noun
from agentload.registry import Seam

DEFAULT = "openai-chat"
Fields = tuple[tuple[str, str], ...]
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises; the last of them for JSON that is nested too deeply."""
_MAX_TOKENS = 10**9


class Heard:
    """What has been understood of one answer so far."""

    __slots__ = ("error", "finished", "input_tokens", "output_tokens", "texts", "whole")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.input_tokens: int | None = None
        """Of the prompt, as the answer counts them; None: it does not say."""
        self.output_tokens: int | None = None
        self.finished = False
        """The model has said all it will; what ends the stream may still be due."""
        self.whole = False
        """A stream's last event has come."""
        self.error: str | None = None
        """Why it is no answer."""

    def fail(self, reason: str) -> None:
        """The first reason stays."""
        self.error = self.error or reason

    def count(self, input_tokens: int | None, output_tokens: int | None) -> None:
        """Token counts, where they are given; below nothing, or beyond any model, they are none."""
        if not (0 <= (input_tokens or 0) <= _MAX_TOKENS and 0 <= (output_tokens or 0) <= _MAX_TOKENS):
            return
        self.input_tokens = self.input_tokens if input_tokens is None else input_tokens
        self.output_tokens = self.output_tokens if output_tokens is None else output_tokens


class Framing(StrEnum):
    """How a stream is cut into events."""

    SSE = "sse"
    """Server-sent events."""
    LINES = "ndjson"
    """A JSON document on each line."""
    TEXT = "chunks"
    """None: text as it comes."""


class Progress(StrEnum):
    """How far work is that is asked after."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"


class Standing(NamedTuple):
    """What an answer says of such work."""

    id: str | None
    progress: Progress | None
    """None: it says nothing about that."""
    reason: str | None = None
    """Why it failed."""
    eta_s: float | None = None
    """In how many seconds it will have ended, as the gateway says."""
    position: int | None = None
    """Its place in the queue, 1 for who is next, as the gateway says."""


class Flavour(Noun, ABC):
    """The contract."""

    path: ClassVar[str | None]
    """Where requests go, below the API's root (which may end with `/v1`); None: the target must say."""
    tail: ClassVar[str | None] = None
    """How the path of a URL ends that is of this flavour; None: a path alone does not tell."""
    identity: ClassVar[Fields] = (("Authorization", "Bearer {tenant}"), ("X-Tenant", "{tenant}"))
    """How tenants are named where the target does not say."""
    fields: ClassVar[Fields] = ()
    """Header fields that every request has, unless the target names them."""
    writes: ClassVar[frozenset[str]] = frozenset()
    """What of a body is not the target's to say."""
    mark: ClassVar[tuple[str, str] | None] = None
    """A field by which a whole answer tells its API, and its value; None: there is none."""

    body: dict[str, Any] = Field(default_factory=dict)
    """More fields for every request's body."""

    @property
    def method(self) -> str:
        """Of its requests."""
        return "POST"

    @property
    def streams(self) -> bool:
        """Whether an answer can be had as a stream of events."""
        return True

    @property
    def only_streams(self) -> bool:
        """Whether it answers with a stream whatever is asked."""
        return False

    @property
    def framing(self) -> Framing:
        """Of its streams."""
        return Framing.SSE

    def as_stream(self, stream: bool) -> bool:
        """Whether a stream is to be expected, where the workload says `stream`."""
        return self.streams and (stream or self.only_streams)

    @property
    def asks_after_s(self) -> float | None:
        """None: the answer comes with the request. Else the request only begins work, which is asked after
        so many seconds later, again and again (see `standing`)."""
        return None

    @property
    def takes_steps(self) -> bool:
        """Whether durable jobs of several steps can be posted, as to our own `/v1/jobs`. Else a job is one
        request of this flavour, begun and asked after."""
        return self.asks_after_s is None

    def job_order(self, order: JobOrder) -> JobOrder:
        """A profile's durable job as this API can be asked for it: a gateway that has no steps is asked for
        one chat call, which our provider sees and knows by its marker."""
        if self.takes_steps:
            return order
        return order.model_copy(update={"steps": (JobStep(chat=True),), "max_attempts": None})

    @property
    def key_field(self) -> str | None:
        """The header field by which a job that is posted again is known; None: there is none."""
        return "Idempotency-Key" if self.takes_steps else None

    @abstractmethod
    def request_body(self, prompt: str, arrival: Arrival, model: str) -> bytes:
        """The JSON of one request; the prompt is the whole of its last user message."""

    @abstractmethod
    def read_event(self, kind: bytes, data: bytes, heard: Heard) -> bool:
        """Understand one event of a stream; whether text came with it. Raises NOT_JSON."""

    @abstractmethod
    def read_whole(self, data: bytes | bytearray, heard: Heard) -> None:
        """Understand the body of an answer with status 200. Raises NOT_JSON."""

    def standing(self, data: bytes | bytearray) -> Standing:
        """What an answer says of work that is asked after. Raises NOT_JSON."""
        raise NotImplementedError

    def poll_path(self, path: str, name: str) -> str:
        """Where it is asked after; `path` is where it was begun, `name` its id, fit for a path."""
        return f"{path}/{name}"

    def cancel_at(self, path: str, name: str) -> tuple[str, str] | None:  # noqa: ARG002
        """Method and path of the request by which a client that leaves calls such work off; None: there is
        none. `path` and `name` as above."""
        return None

    @property
    def can_call_off(self) -> bool:
        """Whether who leaves can say so: a connection that closes says it of an answer that comes with the
        request, and nothing of work that is asked after."""
        return self.asks_after_s is None or self.cancel_at("/", "1") is not None

    @cached_property
    def more(self) -> str:
        """The fields of `body`, as they follow others in a JSON object."""
        text = msgspec.json.encode(self.body).decode()[1:-1]
        return f",{text}" if text else ""


SEAM: Seam[Flavour] = Seam(__name__, Flavour)


def of_path(path: str) -> str | None:
    """The flavour that a URL's path ends with, None where it does not say."""
    for name in SEAM.names():
        tail = SEAM.get(name).tail
        if tail is not None and path.endswith(tail):
            return name
    return None


def spoken_in(answer: dict[str, Any]) -> str | None:
    """The flavour that a whole answer says it is of, None where it bears no mark."""
    for name in SEAM.names():
        mark = SEAM.get(name).mark
        if mark is not None and answer.get(mark[0]) == mark[1]:
            return name
    return None


def owners(key: str) -> list[str]:
    """The flavours that add this key to a target file."""
    return [name for name in SEAM.names() if key in SEAM.get(name).model_fields]


def error_name(error: object) -> str:
    """The code of an error object, else its type, else its message: the shortest that says what it was."""
    if isinstance(error, dict):
        fields = cast("dict[str, Any]", error)
        for key in ("code", "type", "message"):
            value = fields.get(key)
            if isinstance(value, str | int | float) and value != "":
                return str(value)
    return str(error) if isinstance(error, str) and error else "error"
