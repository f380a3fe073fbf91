"""What became of each request, provider call, job and tool call of a run."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How an attempt ended. Every ending has a name."""

    ANSWERED = "answered"
    REJECTED = "rejected"
    """429, 503 or 529 (or 402, 413) before any work was done."""
    EXPIRED = "expired"
    """504: its deadline passed while it waited, or could not be met."""
    FAILED = "failed"
    """Any other status, a connection error, an error inside a 200 stream, or an answer not its own."""
    TRUNCATED = "truncated"
    """A 200 whose body or stream ended before its terminal event."""
    ABANDONED = "abandoned"
    """The client gave up (its own timeout, or it left on purpose)."""
    UNFINISHED = "unfinished"
    """Still open when the run's drain ended; its latency is at least its age."""
    UNSENT = "unsent"
    """Load that the generator failed to send."""


class RequestRecord(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One ATTEMPT of one logical request, as the client saw it. Attempts count from 0."""

    seq: int
    attempt: int
    tenant: str
    service_class: str
    phase: str
    due_ns: int
    """The intended start of this attempt (attempt 0: the arrival; later ones: when the retry was due)."""
    sent_ns: int
    ended_ns: int
    outcome: Outcome
    final: bool
    """True for the last attempt of its logical request."""
    first_due_ns: int
    """The intended start of attempt 0: logical latency counts from here."""
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    status: int = 0
    """HTTP status, or 0 when no status line arrived."""
    retry_after: str | None = None
    """The Retry-After header exactly as received."""
    retry_after_s: float | None = None
    """The same as seconds from the answer, None when absent or not RFC 9110 syntax."""
    input_tokens: int = 0
    declared_output_tokens: int | None = None
    output_tokens: int = 0
    """Tokens received (from the usage block, else counted words)."""
    planned_output_tokens: int = 0
    stream: bool = False
    server_queue_ns: int | None = None
    """`queue;dur=` of Server-Timing, when the gateway says so."""
    wait_cause: str | None = None
    """Its `desc`: why the request waited long, or was refused, as the reference gateway says."""
    reason: str | None = None
    """`X-Admission-Reason`, else the error code of the body, else the transport error."""
    own_answer: bool | None = None
    """Whether the answer carried this request's own acknowledgement; None when there was none to look at."""
    worker: int = 0
    connection_reused: bool = False
    run: str | None = None
    """The run that it was a step of, as sent in `X-Run-Id`."""
    called_off: int | None = None
    """Its client left, and called the work off by a request of its own: the status of its answer, 0 where
    none came. None: no such request was sent."""
    silent: bool = False
    """Its client left work that goes on until it is called off, and could not say so."""


class CallEnding(StrEnum):
    """How the provider's side of one call ended (the provider's own names)."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    """The caller left before the end."""
    CUT = "cut"
    """A fault ended it after it was admitted."""
    THROTTLED = "throttled"
    """Refused by a limit (429) or for want of a slot."""
    FAULTED = "faulted"
    """Refused by an injected fault before admission."""
    INVALID = "invalid"
    """400, 401 or 404: not a call the provider could serve."""
    OPEN = "open"
    """Still in flight when the ledger was read."""


class LedgerEntry(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The provider's own record of one upstream call, on the run's clock."""

    call: int
    arrived_ns: int
    ending: CallEnding
    tenant: str | None = None
    """From the marker in the message; None when the call carried no valid marker."""
    seq: int | None = None
    attempt: int | None = None
    """The `try` word of the marker: which attempt of the client it belongs to."""
    model: str = ""
    endpoint: str = "chat"
    stream: bool = False
    queued_ns: int | None = None
    """When it began to wait for a slot at the provider; None when it never waited."""
    started_ns: int | None = None
    """When it entered service; None when it never did."""
    ended_ns: int | None = None
    """When it left service or was refused (a call leaves service before its last bytes go out)."""
    status: int = 200
    input_tokens: int = 0
    charged_tokens: int = 0
    """What the token bucket was asked for."""
    output_tokens: int = 0
    not_before_ns: int | None = None
    """For a throttled call: the instant before which the provider said not to come back."""
    early: bool = False
    """It arrived before an instant its caller had been told to wait for."""
    retry_header: int | None = None
    """`x-stainless-retry-count`, when present."""
    reason: str | None = None
    """Which limit or fault refused or cut it, in the provider's words."""


class JobRecord(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One durable job, as its client saw it: accepted or not, what was promised, how it ended, if ever."""

    seq: int
    tenant: str
    service_class: str
    phase: str
    due_ns: int
    deadline_ns: int
    """By when it must have ended."""
    key: str
    """The idempotency key of every POST; empty: the target names no field for one, so that none was sent."""
    steps: int
    max_attempts: int | None = None
    """Failed deliveries that the client allowed."""
    sent_ns: int | None = None
    """When the first POST was sent; None: never."""
    posts: int = 0
    """A POST that brought no answer, or a refusal that says when to come back, is made again."""
    status: int = 0
    """Of the last POST; 0: no answer."""
    accepted_ns: int | None = None
    """When the (first) 202 came. None: it was never accepted."""
    id: str | None = None
    eta_s: float | None = None
    """The first ETA that the client was told, in seconds from `told_ns`."""
    position: int | None = None
    """The position that came with it."""
    told_ns: int | None = None
    state: str | None = None
    """The terminal state. None: the client never saw one."""
    reason: str | None = None
    ended_ns: int | None = None
    """When the client saw that it had ended: at most one poll later."""
    gave_up_ns: int | None = None
    """When the client asked for the last time, of a job that it never saw end."""
    answered_ns: int | None = None
    """When a poll was answered for the last time, whatever the answer. None: none ever was."""
    attempts: int = 0
    """Failed deliveries, as the gateway says."""
    deliveries: int = 0
    """Steps begun, as the gateway says."""
    shown_ns: int | None = None
    """When a poll showed it for the last time as one that has not ended."""
    polls: int = 0
    poll_faults: dict[str, int] = {}
    """Polls that went wrong, by status or transport error."""
    winners: dict[str, int] = {}
    """Step (from 0) → the number of the tool call whose result the job has."""
    relapsed: bool = False
    """It had ended, and had another end, or none, when it was asked for once more."""


class ToolRecord(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One call of a fake tool, from the provider's ledger, on the run's clock."""

    call: int
    tool: str
    arrived_ns: int
    ended_ns: int | None = None
    ending: str = "open"
    """`completed`, `failed` (told to), `cancelled` (its caller left), or `open`."""
    status: int = 0
    key: str | None = None
    """The idempotency key that it was called with."""
    job: str | None = None
    step: int | None = None
    attempt: int | None = None
    ref: str | None = None
    """The client's own name of the step: seq and step of the job, the same at every delivery."""
    side_effect: bool = False
    effect_ns: int | None = None
    """When it had its effect. None: it had none."""
    duplicate: bool = False
