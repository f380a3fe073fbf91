"""The nouns of durable jobs: what is asked for, what is kept, and what a step came to. PURE.

Times in a job are Unix times in nanoseconds (`*_at_ns`): they must mean the same after a restart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from agentload.gateway.json_bounds import MAX_TOTAL_TOKENS

NS = 1_000_000_000


class JobState(StrEnum):
    """Where a job is, as its row says. (DEFERRED is never in a row: it is a QUEUED job that is parked.)"""

    QUEUED = "queued"
    DEFERRED = "deferred"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing is ever done for it again."""
        return self in _ENDED


_ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED})


class ChatCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One chat completion: its body, and what admission wants to know of it."""

    body: bytes
    """As the provider is sent it; never a stream."""
    model: str
    input_tokens: int
    text_chars: int
    max_output_tokens: int | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a tool."""

    name: str
    seconds: float = 0.0
    """How long it is expected to take; also what the fake tool takes."""
    side_effect: bool = False
    payload: bytes = b"null"
    """JSON, as it came."""
    timeout_s: float | None = None
    """Longest call. None: the configured one."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: exactly one of the two."""

    chat: ChatCall | None = None
    tool: ToolCall | None = None


class StepResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step that is done came to."""

    step: int
    """From 0."""
    kind: Literal["chat", "tool"]
    status: int
    output: bytes
    """JSON: the provider's or the tool's body."""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    """From its start, under its last lease, to its end."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks for, read and checked."""

    tenant: str
    service_class: str
    workflow: str
    steps: tuple[Step, ...]
    deadline_s: float
    """From now."""
    max_attempts: int
    max_total_tokens: int | None = None
    key: str | None = None
    """The caller's idempotency key."""
    digest: str = ""
    """Of everything that was asked for: equal keys must come with equal digests."""
    bytes: int = 0
    """What holding it costs in memory, about."""

    @property
    def tool_seconds(self) -> float:
        """What its tools are expected to take, one after another."""
        return sum(step.tool.seconds for step in self.steps if step.tool is not None)


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job as it stands in the store. Changed only by the functions of `states.py`."""

    id: str
    number: int
    """Order of acceptance in this store."""
    tenant: str
    service_class: str
    workflow: str
    steps: tuple[Step, ...]
    """Empty once it has ended: they are of no use any more."""
    steps_total: int
    created_at_ns: int
    deadline_at_ns: int
    max_attempts: int
    max_total_tokens: int | None = None
    estimated_units: float = 0.0
    """Work units that its steps declared, all together."""
    key: str | None = None
    digest: str = ""
    state: JobState = JobState.QUEUED
    step: int = 0
    """The step that is next or under way, from 0; the number of steps done."""
    results: tuple[StepResult, ...] = ()
    token: int = 0
    """Fencing token: goes up whenever the job changes hands. A writer with another one is stale."""
    owner: str = ""
    """Who holds the lease: a name of the gateway process."""
    leased_until_ns: int = 0
    """0: no lease."""
    deliveries: int = 0
    """Steps begun, every time counted."""
    failures: int = 0
    """Deliveries that failed, at most `max_attempts`."""
    not_before_ns: int = 0
    """The next step is not begun earlier. 0: at once."""
    total_tokens: int = 0
    """Tokens charged so far, those of failed deliveries included."""
    reason: str = ""
    """Machine-readable, for jobs that ended other than completed; else of the last failure."""
    message: str = ""
    ended_at_ns: int = 0


class Verdict(StrEnum):
    """What the end of one delivery means for its job."""

    DONE = "done"
    """The step is done."""
    RETRY = "retry"
    """It failed, and may be tried again."""
    REFUSED = "refused"
    """It failed, and would fail again."""
    EXPIRED = "expired"
    """The run's deadline has passed, or cannot be met."""
    RELEASED = "released"
    """The gateway is shutting down: nobody's fault."""
    PARKED = "parked"
    """Admission would not have it now: it was never begun."""


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one delivery of a step ended."""

    verdict: Verdict
    status: int = 0
    """HTTP status; 0 when there was none."""
    output: bytes = b"null"
    """JSON."""
    input_tokens: int = 0
    output_tokens: int = 0
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    """When it may be tried again, at the earliest."""


# --------------------------------------------------------------------------- the wire

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z")]
"""Of a tool. It becomes the last part of an address: `..` would lead out of it."""
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
_Above0 = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class ToolBody(msgspec.Struct, forbid_unknown_fields=True):
    """A tool step as it comes over the wire."""

    name: _Name
    seconds: _Seconds = 0.0
    side_effect: bool = False
    payload: msgspec.Raw = msgspec.Raw(b"null")
    timeout_s: _Above0 | None = None


class StepBody(msgspec.Struct, forbid_unknown_fields=True):
    """A step as it comes over the wire."""

    chat: dict[str, msgspec.Raw] | None = None
    tool: ToolBody | None = None


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /v1/jobs."""

    steps: Annotated[list[StepBody], msgspec.Meta(min_length=1)]
    workflow: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    service_class: str | None = None
    deadline_ms: Annotated[float, msgspec.Meta(gt=0, le=86_400_000)] | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    max_total_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOTAL_TOKENS)] | None = None
