"""What the CLI, the Locust master and its workers say to one another. Pure.

    CLI ── config file ──> master ── hello, clock, assign, ready, start, report … final ──> workers
        <── JSON lines ──         over Locust's own connection, as MessagePack

A worker's first words come only after it has registered its handlers: Locust drops what arrives before.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from agentload.clock_alignment import Exchange, compare
from agentload.drivers.withheld import Withheld
from agentload.measure import RecorderState
from agentload.model import Stall

DEFAULT_IN_FLIGHT_CAP = 20_000


class Message(StrEnum):
    """Names of the messages between master and workers."""

    HELLO = "agentload-hello"
    """Worker: my handlers are registered."""
    CLOCK = "agentload-clock"
    """Both: what time is it with you?"""
    ASSIGN = "agentload-assign"
    """Master: this is the run, and your shard of it."""
    READY = "agentload-ready"
    """Worker: I have drawn the plan."""
    START = "agentload-start"
    """Master: time zero."""
    REPORT = "agentload-report"
    """Worker: what happened since the last report."""
    STOP = "agentload-stop"
    """Master: send nothing more, wait briefly for what is open, report."""


class MasterConfig(msgspec.Struct, kw_only=True):
    """One live run, as the CLI hands it to the master (a JSON file in the run folder). Holds no secrets."""

    profile: dict[str, Any]
    """A Profile as JSON."""
    seed: int
    target: dict[str, Any]
    """A target as JSON; keys are named by their environment variables."""
    run_id: int
    """What the markers in the prompts carry, so that the provider's ledger can tell runs apart."""
    run_dir: str
    workers: int = 1
    """Worker processes to start on this host."""
    expect_workers: int = 0
    """Workers from elsewhere to wait for, instead of starting any."""
    bind: str = "127.0.0.1"
    """Address on which the master listens for workers. Its protocol has no authentication."""
    bind_port: int = 0
    web_port: int = 0
    """Where Locust's own web UI listens, on loopback; 0: nowhere."""
    in_flight_cap: int = DEFAULT_IN_FLIGHT_CAP
    """Requests open at once, and connections, over all workers, at most."""
    max_rate: float | None = None
    """Requests sent in any second, over all workers, at most."""
    max_answer_bytes: int = 8 * 2**20
    """Of an answer's body."""
    allow_hosts: tuple[str, ...] = ()
    """What users' own code may load beside this machine and the target."""
    drain_s: float | None = None
    """None: as the profile says."""
    fingerprint: str | None = None
    """The plan that the CLI has drawn: workers that draw another refuse."""


class Assignment(msgspec.Struct, kw_only=True):
    """One worker's part of the run."""

    config: MasterConfig
    index: int
    of: int


class Ready(msgspec.Struct, kw_only=True):
    """A worker has drawn the plan and could begin."""

    index: int
    fingerprint: str = ""
    scheduled: int = 0
    """Arrivals in its shard (closed loops come on top)."""
    in_flight_cap: int = 0
    error: str | None = None
    """Why it cannot: one line for the user."""


class ClockReading(msgspec.Struct, kw_only=True):
    """One exchange of clock readings: the worker's before and after, the master's in between."""

    asked_ns: int
    master_ns: int = 0


class Start(msgspec.Struct, kw_only=True):
    """When it begins, on the master's monotonic clock."""

    t0_ns: int


class Stop(msgspec.Struct, kw_only=True):
    """Finish early."""

    drain_s: float


class Counts(msgspec.Struct, kw_only=True):
    """One tenant's requests so far, as one worker counts them."""

    offered: int = 0
    """Logical requests begun (or given up unsent)."""
    retries: int = 0
    """Attempts sent beyond the first."""
    in_flight: int = 0
    """Attempts open now."""
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)
    """Attempts ended, by outcome."""
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    """Logical requests ended, by the outcome of their last attempt."""

    def add(self, other: Counts) -> None:
        """Add another worker's counts."""
        self.offered += other.offered
        self.retries += other.retries
        self.in_flight += other.in_flight
        for mine, theirs in ((self.outcomes, other.outcomes), (self.ended, other.ended)):
            for outcome, n in theirs.items():
                mine[outcome] = mine.get(outcome, 0) + n


class Histogram(msgspec.Struct, array_like=True):
    """Durations of one kind since the last report."""

    tenant: str
    metric: str
    outcome: str
    """Empty for metrics that no outcome divides (lateness)."""
    state: RecorderState


class WorkerState(msgspec.Struct, kw_only=True):
    """How a worker itself is doing; totals, not differences."""

    scheduled: int = 0
    """Arrivals in its shard, closed-loop jobs that have come due, and what users' own code has sent."""
    issued: int = 0
    """Logical requests whose first attempt was sent."""
    capped: int = 0
    peak_in_flight: int = 0
    cpu: float = 0.0
    cpu_s: float = 0.0
    """Processor time since time zero."""
    run_queue_wait: float = 0.0
    resident_bytes: int = 0
    connections_opened: int = 0
    resent: int = 0
    """Requests sent again because their kept-alive connection had been closed before they arrived."""
    found_closed: int = 0
    clock_offset_ns: int = 0
    """What was added to the master's time zero; 0 on the same host."""
    pid: int = 0
    host: str = ""
    user_errors: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """What tenants' own code raised, a line each, and how often."""
    ended_by_users: str | None = None
    """Whose own code wants the run to end, in words."""
    withheld: list[Withheld] = msgspec.field(default_factory=list[Withheld])
    """What the caps kept it from."""


class Report(msgspec.Struct, kw_only=True):
    """What a worker tells the master twice a second."""

    index: int
    sequence: int
    """1, 2, 3, …: a gap is a lost report."""
    records: bytes
    """RequestRecords as JSON lines, ready for the file."""
    records_total: int
    """Records sent so far, these included: what a gap has cost."""
    counts: dict[str, Counts]
    """Tenants whose counts have changed."""
    histograms: list[Histogram]
    stalls: list[Stall]
    state: WorkerState
    final: bool = False
    jobs: bytes = b""
    """JobRecords as JSON lines."""


# --------------------------------------------------------------------------- master to CLI


class TenantProgress(msgspec.Struct, kw_only=True):
    """One tenant, so far. Latencies are those of answered logical requests, from their intended start."""

    tenant: str
    offered: int = 0
    answered: int = 0
    rejected: int = 0
    """Attempts refused."""
    failed: int = 0
    """Logical requests that ended in any way but answered."""
    retries: int = 0
    in_flight: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    recent_p50_ms: float | None = None
    """Of the last five seconds."""
    recent_p95_ms: float | None = None
    recent_p99_ms: float | None = None


class Progress(msgspec.Struct, kw_only=True, tag_field="event", tag="progress"):
    """How the run goes; twice a second."""

    at_ns: int
    """Since the run's zero; negative before it."""
    tenants: list[TenantProgress]
    scheduled: int
    issued: int
    in_flight: int
    workers: int
    """Workers still there."""
    lateness_p50_ms: float | None = None
    lateness_p99_ms: float | None = None


class MasterReady(msgspec.Struct, kw_only=True, tag_field="event", tag="ready"):
    """The master listens."""

    port: int
    pid: int


class Started(msgspec.Struct, kw_only=True, tag_field="event", tag="started"):
    """Every worker knows time zero."""

    t0_ns: int
    """On the monotonic clock of the master's host."""
    t0_unix_s: float
    scheduled: int


class WorkerLost(msgspec.Struct, kw_only=True, tag_field="event", tag="worker-lost"):
    """A worker died: the load is no longer the planned one, and the run is being ended."""

    index: int
    because: str


class Done(msgspec.Struct, kw_only=True, tag_field="event", tag="done"):
    """Everything is written."""

    interrupted: str | None = None
    """Why the run ended early; None when it ran to its end."""
    records: int = 0
    trustworthy: bool = False
    user_errors: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Of all workers."""
    ended_by_users: str | None = None
    """Whose own code has ended it, in words."""


class Failed(msgspec.Struct, kw_only=True, tag_field="event", tag="failed"):
    """The run could not begin."""

    error: str
    """One line for the user."""


MasterEvent = MasterReady | Started | Progress | WorkerLost | Done | Failed

_event_decoder: msgspec.json.Decoder[MasterEvent] = msgspec.json.Decoder(MasterEvent)
_encoder = msgspec.json.Encoder()


def event_line(event: MasterEvent) -> str:
    """An event as the line that the master prints."""
    return _encoder.encode(event).decode()


def read_event(line: bytes | str) -> MasterEvent:
    """The event on such a line. Raises msgspec.DecodeError."""
    return _event_decoder.decode(line)


def clock_offset_ns(readings: list[Exchange]) -> int:
    """What to add to the master's clock to get ours, from (asked, master's reading, answered) exchanges.

    When zero lies within the error, the clocks are one (the same host): 0, exactly. Raises ValueError
    without any exchange.
    """
    reading = compare(readings)
    return 0 if reading.maybe_one_clock else -reading.ahead_ns
