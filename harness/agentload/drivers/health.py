"""Whether the load was generated as planned. Pure.

A generator that is late measures itself; one that sends too little makes every gateway look good.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentload.evidence import statistics
from agentload.evidence.history import GENERATOR_ERROR, STOPPED
from agentload.evidence.intervals import merge
from agentload.model import Distribution, GeneratorHealth, Outcome, Profile, RequestRecord

LATENESS_FLOOR_MS = 20.0
LATENESS_SHARE = 0.1
STALL_RECOVERY_NS = 100_000_000
"""What piled up in a stall is sent in the first moments after it."""
MOST_STALLED = 0.05
"""A machine that stands still for a larger share of the run is too busy, whatever happens in between."""


def lateness_bound_ms(baseline_p50_ms: float | None = None) -> float:
    """How late the 99th percentile of sends may be: 20 ms, or a tenth of the baseline's median latency."""
    return max(LATENESS_FLOOR_MS, LATENESS_SHARE * (baseline_p50_ms or 0.0))


def assess(
    health: GeneratorHealth, baseline_p50_ms: float | None = None, excused: int = 0
) -> GeneratorHealth:
    """The same numbers with `trustworthy` and `reasons` decided from them.

    `excused`: requests that were not sent because the run was ended before they were due.
    """
    lateness_ms = health.calm_lateness_ms or health.lateness_ms
    found = [
        *_losses(health),
        *_missing_load(health, excused),
        *_lateness(lateness_ms, lateness_bound_ms(baseline_p50_ms)),
    ]
    return msgspec.structs.replace(health, trustworthy=not found, reasons=found)


def reassess(
    health: GeneratorHealth,
    records: Sequence[RequestRecord],
    duration_ns: int,
    *,
    interrupted: bool = False,
) -> GeneratorHealth:
    """The same, knowing the records: a moment's stall is no reason to doubt the rest of the run.

    Lateness is judged outside the stalls (the judge gives every verdict with and without them) and against
    the median latency of what was answered. A machine that stood still too often is doubted for that. What an
    interrupted run would have sent later is not missing from what it did send.
    """
    windows = merge((stall.start_ns, stall.end_ns + STALL_RECOVERY_NS) for stall in health.stalls)
    first = [r for r in records if r.attempt == 0 and r.outcome is not Outcome.UNSENT]
    answered = [r.ended_ns - r.due_ns for r in first if r.outcome is Outcome.ANSWERED]
    if windows:
        calm = [r for r in first if not any(start <= r.due_ns < end for start, end in windows)]
        lateness = statistics.distribution([r.sent_ns - r.due_ns for r in calm])
        health = msgspec.structs.replace(health, calm_lateness_ms=lateness)
    excused = sum(r.attempt == 0 and r.reason == STOPPED for r in records) if interrupted else 0
    again = assess(health, statistics.distribution(answered).p50, excused)
    spoilt = sum(r.outcome is Outcome.UNSENT and r.reason == GENERATOR_ERROR for r in records)
    if spoilt:
        again.reasons.append(
            f"{spoilt} requests were spoilt by an error of the load generator: see the workers' logs"
        )
        again.trustworthy = False
    stalled = sum(stall.end_ns - stall.start_ns for stall in health.stalls) / max(1, duration_ns)
    if stalled > MOST_STALLED:
        again.reasons.append(
            f"the machine stood still for {stalled:.0%} of the run: this machine is too busy"
        )
        again.trustworthy = False
    return again


def without_silent_users(
    health: GeneratorHealth, profile: Profile, records: Sequence[RequestRecord]
) -> GeneratorHealth:
    """The same, doubted where a tenant's own code sent nothing: a load that is not there hurts nobody.

    What its code should send is not known; that it should send something is.
    """
    sent = {record.tenant for record in records if record.outcome is not Outcome.UNSENT}
    found = [
        f"the users of {tenant.name} ({tenant.locust.user_class}) sent no request: does their code raise, "
        "wait for longer than their phases last, or fire no `request` event?"
        for tenant in profile.tenants
        if tenant.locust is not None and tenant.name not in sent
    ]
    reasons = [*health.reasons, *found]
    return msgspec.structs.replace(health, reasons=reasons, trustworthy=health.trustworthy and not found)


def _losses(health: GeneratorHealth) -> list[str]:
    found: list[str] = []
    if health.workers_lost:
        found.append(
            f"{health.workers_lost} of {health.workers} workers died: the load was not the planned one"
        )
    if health.records_lost:
        found.append(f"the outcome of {health.records_lost} requests is unknown: their records were lost")
    return found


def _missing_load(health: GeneratorHealth, excused: int) -> list[str]:
    found: list[str] = []
    if health.capped:
        found.append(
            f"{health.capped} requests were not sent because {health.in_flight_cap} were open already: "
            "either the target does not answer, or the cap is too low for this load"
        )
    unsent = health.scheduled - health.issued - health.capped - excused
    if unsent > 0:
        found.append(f"{unsent} of {health.scheduled} planned requests were not sent")
    return found


def _lateness(lateness_ms: Distribution, bound_ms: float) -> list[str]:
    name, value = highest_stated(lateness_ms)
    if value is None or value <= bound_ms:
        return []
    return [
        f"requests were sent late: {name} {value:.1f} ms, bound {bound_ms:.1f} ms: this machine is too busy "
        "(use more workers, another machine, or less load)"
    ]


def highest_stated(distribution: Distribution) -> tuple[str, float | None]:
    """The percentile to judge by: p99, or the highest below it that so few samples can state."""
    for name in ("p99", "p95", "p50"):
        value: float | None = getattr(distribution, name)
        if value is not None:
            return name, value
    return "p99", None
