"""What a profile asks for."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentload.model.units import NS
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.weight import Weight
from fake_provider.config import ProviderConfig


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
