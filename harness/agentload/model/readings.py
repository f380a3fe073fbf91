"""What was read beside the requests: of the gateway, and of the generator itself."""

from __future__ import annotations

import msgspec


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
