"""The nouns: what a profile asks for, what a run recorded, and what a check decided.

Times are integer nanoseconds since the run began (`*_ns`), unless a name says otherwise.
Live and simulated runs fill exactly these types, so that one judge serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentload.promises import Promises, Truth
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.weight import Weight
from fake_provider.config import ProviderConfig

NS = 1_000_000_000
"""Nanoseconds in a second."""


# --------------------------------------------------------------------------- what a profile asks for


class Noun(BaseModel):
    """A frozen piece of a profile; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Spec(Noun):
    """One instance of a seam (an arrival process, a workload, a behaviour, a check) with its parameters."""

    kind: str
    params: dict[str, Any] = Field(default_factory=dict)


class Phase(Noun):
    """A stretch of the run under one load."""

    name: str
    seconds: float = Field(gt=0, le=86_400)
    record: bool = True
    """False for a warm-up: its requests are sent but no check counts them."""
    replays: str | None = None
    """An earlier phase whose arrivals (times and sizes) every tenant active in both repeats, shifted."""


class ClientShare(Noun):
    """One program of a tenant's population of clients, and the share of its logical requests that have it."""

    share: float = Field(gt=0, le=1)
    client: Spec


class ToolUse(Noun):
    """A call of a tool, as a step of a job. Our provider has such tools (`fake_provider/tools.py`)."""

    name: str = Field(default="tool", pattern=r"^[A-Za-z0-9_.-]+$", max_length=64)
    seconds: float = Field(default=0.0, ge=0, le=3_600)
    """How long it takes."""
    side_effect: bool = False
    """Whether calling it changes something: such effects are counted."""
    fail_first: int = Field(default=0, ge=0)
    """So many of its first calls fail, without effect."""
    hang_first: int = Field(default=0, ge=0)
    """So many of its first calls have their effect, and never answer."""
    timeout_s: float | None = Field(default=None, gt=0, le=3_600)
    """Longest call. None: as the gateway has it."""


class JobStep(Noun):
    """One step of a job: a chat call of the size that the tenant's workload draws, or a tool. Exactly one."""

    chat: bool = False
    tool: ToolUse | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, written: Any) -> Any:
        return {"chat": True} if written == "chat" else written

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.chat == (self.tool is not None):
            raise ValueError("must be either `chat` or `{tool: {…}}`")
        return self


class JobOrder(Noun):
    """Makes a tenant's arrivals durable jobs: POST /v1/jobs, then asked for until they have ended."""

    steps: tuple[JobStep, ...] = Field(min_length=1, max_length=100)
    deadline_s: float = Field(default=30.0, gt=0, le=86_400)
    """From the due time; what is left of it is sent as `X-Deadline-Ms`."""
    max_attempts: int | None = Field(default=None, ge=1, le=1_000)
    """Failed deliveries that the caller allows. None: as many as the gateway does."""
    poll_s: float = Field(default=0.5, ge=0.01, le=60)
    """Between two questions after the job."""
    timeout_s: float = Field(default=5.0, gt=0, le=600)
    """How long an answer is waited for, whatever is asked."""
    grace_s: float = Field(default=5.0, ge=0, le=600)
    """So long after its deadline a job whose end the gateway still does not show is given up."""
    confirm_s: float = Field(default=2.0, ge=0, le=600)
    """How long after it was seen to have ended a job is asked for once more: an end must last."""


class LocustUsers(Noun):
    """Users of a class of somebody's own Locust file, who send what their code says: nothing is planned."""

    file: str
    """Absolute path of the file."""
    user_class: str = Field(alias="class")
    """A `User`, `HttpUser` or `FastHttpUser` in it."""
    users: int = Field(default=1, ge=1)
    spawn_rate: float | None = Field(default=None, gt=0)
    """Users begun a second. None: all at once."""
    sha256: str
    """Of the file's content, hex: a plan's fingerprint covers it."""


class Tenant(Noun):
    """One tenant; a profile's `count: 3` has already become `quiet-1`, `quiet-2`, `quiet-3`."""

    name: str
    group: str
    """The name as written in the profile; equal to `name` where there is no count."""
    service_class: str = "standard"
    weight: Weight = 1.0
    arrivals: Spec | None = None
    """An open loop: arrivals that do not wait for answers. Exactly one of `arrivals`, `users` and `locust` is
    set."""
    users: int | None = Field(default=None, ge=1)
    """A closed loop: so many users, each sending its next job when the last has ended and it has thought."""
    think_s: float = Field(default=0.0, ge=0)
    during: tuple[str, ...] = ()
    """Names of the phases in which the tenant is active; empty means all."""
    workload: Spec | None = None
    """None: of `locust` users, whose own code says what they send."""
    client: Spec
    clients: tuple[ClientShare, ...] = ()
    """A population: then `client` is its most frequent member, and `behaviours.client_of` says which one a
    logical request has. Empty: every request has `client`."""
    model: str | None = Field(default=None, min_length=1, max_length=200)
    """The model that its requests ask for. None: the target's own."""
    job: JobOrder | None = None
    """Its arrivals are durable jobs of these steps. None: they are chat calls."""
    locust: LocustUsers | None = None
    """Its load comes from a user's own code, and is in no plan."""

    @property
    def awaits_answers(self) -> bool:
        """It sends less when it is answered more slowly (a closed loop): it cannot say what it would want."""
        return self.arrivals is None


class Fault(Noun):
    """Something that goes wrong for a while: at the provider (`fake_provider.faults`) or to the bundled
    gateway (`gateway_faults`). `agentload.faults` says when, in nanoseconds."""

    kind: str
    phase: str | None = None
    """The phase that it lasts for; None: `at_s` and `seconds` say when."""
    at_s: float | None = Field(default=None, ge=0)
    """Seconds from the run's start."""
    seconds: float | None = Field(default=None, gt=0)
    """After so long it has healed (a killed gateway is started again)."""
    tenant: str | None = None
    """Name of the tenant or group that it hits; None: everybody."""
    params: dict[str, Any] = Field(default_factory=dict)


class Scaling(Noun):
    """How far `--scale` may change a profile before it would no longer ask what it asks."""

    least: float = Field(default=0.0, ge=0, le=1)
    most: float = Field(default=1_000.0, ge=1, le=1_000)
    because: str = ""
    """What would go wrong beyond, in a few words."""


class Profile(Noun):
    """A whole experiment. Made only by `agentload.profile`."""

    name: str
    about: str
    seed: int = 1
    phases: tuple[Phase, ...] = Field(min_length=1)
    tenants: tuple[Tenant, ...] = Field(min_length=1)
    provider: ProviderConfig
    gateway: GatewayConfig
    checks: tuple[Spec, ...] = Field(min_length=1)
    faults: tuple[Fault, ...] = ()
    drain_s: float = Field(default=10.0, ge=0, le=600)
    """How long requests still open after the last phase are waited for before they count as unfinished."""
    scale: Scaling = Scaling()

    def phase_window_ns(self, name: str) -> tuple[int, int]:
        """Start (inclusive) and end (exclusive) of a phase. Raises KeyError for an unknown name."""
        start = 0
        for phase in self.phases:
            end = start + round(phase.seconds * NS)
            if phase.name == name:
                return start, end
            start = end
        raise KeyError(name)

    @property
    def duration_ns(self) -> int:
        """Length of all phases together, without the drain."""
        return sum(round(phase.seconds * NS) for phase in self.phases)

    def tenants_named(self, name: str) -> tuple[Tenant, ...]:
        """The tenants that a reference means: one by its own name, or all of a group."""
        return tuple(t for t in self.tenants if name in (t.name, t.group))


# --------------------------------------------------------------------------- the plan


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The size of one logical request, as drawn from its tenant's workload."""

    input_tokens: int
    output_tokens: int
    """What the model will really produce (the marker tells our provider)."""
    declared_output_tokens: int | None
    """`max_tokens` as sent, or None when the caller leaves it out."""
    stream: bool = False
    workflow: str = "chat"
    tool_calls: int = 0
    tool_ns: int = 0
    deadline_ns: int | None = None
    """Relative to the due time; sent as `X-Deadline-Ms`. None: no deadline."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One logical request of an open loop: who wants what, and when."""

    seq: int
    tenant: str
    service_class: str
    phase: str
    due_ns: int
    job: Job
    run: str | None = None
    """What it is a step of, sent as `X-Run-Id`: a closed loop's user is one run. None: of nothing."""
    model: str | None = None
    """The model that it asks for. None: the target's own."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Every arrival of a run, in order of (due_ns, seq), drawn before the clock starts.

    Closed loops cannot be listed ahead (their times depend on the answers); their jobs are keyed draws, so
    user u's k-th job is the same whatever the answers do. Both are covered by the fingerprint.
    """

    seed: int
    arrivals: tuple[Arrival, ...]
    closed_users: int
    """Closed-loop users over all tenants; user g's k-th job has seq len(arrivals) + k * closed_users + g."""
    fingerprint: str
    """SHA-256, hex: equal fingerprints mean equal offered demand."""


# --------------------------------------------------------------------------- what a run recorded


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


class Sample(msgspec.Struct, kw_only=True):
    """A reading: `source` is gateway (its gauges) or health (its page); `values` are numbers, units last."""

    at_ns: int
    source: str
    values: dict[str, float]


class GaugeReadings(msgspec.Struct, kw_only=True):
    """How often the gateway's own gauges were read during a run, and what came of it."""

    where: str
    """The page's URL."""
    reads: int = 0
    failed: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Why a reading brought nothing, in words → how many did not."""
    lacking: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Value → how many of the other readings did not hold it."""


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which a process's heartbeat did not come: nothing measured in it can be trusted."""

    start_ns: int
    end_ns: int
    where: str


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a set of durations, in milliseconds; None where there were too few samples to say."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    n: int = 0
    censored: bool = False
    """True when a None stands for "never" (unanswered requests reach into that percentile)."""


class GeneratorHealth(msgspec.Struct, kw_only=True):
    """Whether the load was generated as planned. A generator that lies about load is worse than none."""

    scheduled: int
    issued: int
    lateness_ms: Distribution
    """Of first attempts, from the intended start to the send."""
    trustworthy: bool
    reasons: list[str] = msgspec.field(default_factory=list)
    """Why not, one line each; empty when trustworthy."""
    stalls: list[Stall] = msgspec.field(default_factory=list)
    calm_lateness_ms: Distribution | None = None
    """The same outside the stalls, which the judge weighs by themselves; None while there were none."""
    run_queue_wait: float = 0.0
    """Share of the time that the workers waited for a processor, 0..1."""
    cpu: float = 0.0
    """Busiest worker's CPU share, 0..1."""
    peak_in_flight: int = 0
    in_flight_cap: int = 0
    capped: int = 0
    """Requests not sent because the cap was reached."""
    workers: int = 1
    workers_lost: int = 0
    records_lost: int = 0
    """Records known to be missing (gaps in a worker's report sequence, or a worker that died)."""
    withheld: list[str] = msgspec.field(default_factory=list[str])
    """What the caps kept tenants' own code from, a line each. No reason for doubt: nothing was planned."""


class Run(msgspec.Struct, kw_only=True):
    """Everything a judge may look at."""

    profile: Profile
    plan: Plan
    driver: str
    """live | simulated"""
    records: list[RequestRecord]
    ledger: list[LedgerEntry]
    samples: list[Sample]
    health: GeneratorHealth
    jobs: list[JobRecord] = msgspec.field(default_factory=list[JobRecord])
    """Durable jobs, in order of seq; their POSTs are in `records`, too."""
    tools: list[ToolRecord] = msgspec.field(default_factory=list[ToolRecord])
    """Calls of tools, in order of arrival."""
    unattributed: int = 0
    """Provider calls that carried no valid marker."""
    ledger_available: bool = True
    """False when the provider is somebody else's: checks that need the ledger are then inconclusive."""
    no_ledger_because: str = ""
    """Why there is none, in words; empty when it was lost with the run's process."""
    clock_uncertainty_ns: int = 0
    """By so much the ledger's times may be off from the clients', either way; 0 where one clock told both."""
    health_page: bool = True
    """False where a target's file names none: nobody asked it, and no check may expect an answer."""
    hears_departures: bool = True
    """False where clients cannot tell a target that they leave: no request of its API calls work off."""
    interrupted: str | None = None
    """Why the run ended early, in words; None when it ran to its end."""
    gauges: GaugeReadings | None = None
    """How well the gateway's own values could be read; None where nobody read them."""
    promises: Promises | None = None
    """What somebody's gateway is known to promise; `profile` is then as it says. None: the profile is what
    the gateway was told, as of the bundled one."""
    shows: frozenset[str] | None = None
    """Values of samples that somebody's gateway is said to show. None: the bundled one, which shows all."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """Versions, command line, machine: for reports, never for verdicts."""

    def knows(self, truth: Truth) -> bool:
        """Whether the profile says of this what the gateway really was told."""
        return self.promises is None or truth in self.promises.known

    def denies(self, truth: Truth) -> bool:
        """Whether the gateway is known to promise no such thing."""
        return self.promises is not None and truth in self.promises.denied


# --------------------------------------------------------------------------- what a check decided


class Severity(StrEnum):
    """Only `must` fails a run."""

    MUST = "must"
    SHOULD = "should"


class Status(StrEnum):
    """The three answers."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a person can go and look at: a request, an instant, and what is to be seen there."""

    note: str
    seq: int | None = None
    at_ns: int | None = None


class Verdict(msgspec.Struct, kw_only=True):
    """What a check found, with the numbers it rests on."""

    check: str
    status: Status
    because: str
    """One sentence a person can act on; for inconclusive ones, what would make it decidable."""
    severity: Severity = Severity.MUST
    measured: float | None = None
    """None when nothing could be measured, or when the measured value is infinite (`censored`)."""
    bound: float | None = None
    unit: str = ""
    n: int = 0
    censored: bool = False
    """True when `measured` is None because the value is +infinity (requests never answered)."""
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    """More numbers, by name; everything a report shows beside the verdict."""


def worst(statuses: list[Status]) -> Status:
    """The verdict over several: failed > inconclusive > passed; no statuses at all is inconclusive."""
    for status in (Status.FAILED, Status.INCONCLUSIVE):
        if status in statuses:
            return status
    return Status.PASSED if statuses else Status.INCONCLUSIVE


Environment = Mapping[str, str]
"""Environment variables, handed in rather than read, so that secrets have one door."""
