"""The ramp that calibrates a target: its profile, when to end it early, and what its records say. Pure.

Steps of one second, each at twice the rate of the last, spread evenly over the profile's own tenants, so that
a limit of each comes into sight as late as it can. Behind the target stands our provider without limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log2
from statistics import median
from typing import Any

from agentload.calibration.knee import Step
from agentload.evidence.statistics import percentile
from agentload.model import NS, Outcome, Phase, Profile, RequestRecord, Spec, Tenant
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig
from fake_provider.config import LatencyConfig, ProviderConfig

STEPS = 8
STEP_S = 1.0
LEAST_PER_S, MOST_PER_S = 4.0, 4_000.0
MOST_TENANTS = 200
OUTPUT_TOKENS = 16
FIRST_TOKEN_MS, INTER_TOKEN_MS = 100.0, 10.0
"""The provider answers no slower than this, or a step would be over before it has an answer."""
PATIENCE_S = 0.15
"""A target that, twice in a row, holds so many seconds of load more than it should is not given any more."""
A_FEW = 8
BEHIND_S = 0.5
ROOM = 100_000
"""Slots, and places in the queue, of a bundled gateway that is to show what it can do, not what it may."""
PHASE = "ramp"


def rates(top_per_s: float) -> tuple[float, ...]:
    """The steps up to a rate (within bounds): doubling, eight at most."""
    top = min(MOST_PER_S, max(LEAST_PER_S * 2, top_per_s))
    count = min(STEPS, 1 + int(log2(top / LEAST_PER_S)))
    return tuple(top / 2**place for place in reversed(range(count)))


def profile_of(profile: Profile, steps: Sequence[float]) -> Profile:
    """The ramp, in the names of the profile's tenants."""
    tenants = profile.tenants[:MOST_TENANTS]
    each = [rate / len(tenants) for rate in steps]
    spec = Spec(kind="steps", params={"rates": each, "every_s": STEP_S})
    return Profile(
        name="calibration",
        about="What the target carries.",
        phases=(Phase(name=PHASE, seconds=len(steps) * STEP_S),),
        tenants=tuple(_caller(tenant, spec, place % 2 == 0) for place, tenant in enumerate(tenants)),
        provider=_provider(profile.provider),
        gateway=_gateway(tenants),
        checks=(Spec(kind="status-codes"),),
        drain_s=3.0,
    )


def service_s(profile: Profile) -> float:
    """How long the provider takes for one call of the ramp."""
    latency = profile.provider.latency
    return (latency.first_token_ms + latency.inter_token_ms * (OUTPUT_TOKENS - 1)) / 1_000


def hopeless(progress: Mapping[str, Any], steps: Sequence[float], service_s: float) -> bool:
    """Whether the ramp should end: the target holds far more than it can be working on, or the generator is
    far behind. `progress` is what a live view is told."""
    at_s = float(progress.get("elapsed_s", 0.0))
    if at_s <= 0:
        return False
    rate = (_due(steps, at_s) - _due(steps, at_s - STEP_S)) / STEP_S
    if progress["in_flight"] > rate * (service_s + PATIENCE_S) + A_FEW:
        return True
    return bool(progress["issued"] < 0.8 * _due(steps, at_s - BEHIND_S) - A_FEW)


def _due(steps: Sequence[float], at_s: float) -> float:
    """Requests that are to be sent until then."""
    return sum(rate * min(STEP_S, max(0.0, at_s - place * STEP_S)) for place, rate in enumerate(steps))


def steps_of(records: Iterable[RequestRecord], steps: Sequence[float], until_ns: int | None) -> list[Step]:
    """What came of each step. `until_ns`: when the ramp was ended early; a step cut to less than half is left
    out (but the first)."""
    by_step: dict[int, list[RequestRecord]] = {}
    everything = [one for one in records if one.attempt == 0 and (until_ns is None or one.due_ns < until_ns)]
    for record in everything:
        by_step.setdefault(record.due_ns // round(STEP_S * NS), []).append(record)
    medians = [_median_ns(some) for some in by_step.values()]
    lag_ns = round(min((one for one in medians if one is not None), default=0.0))
    found: list[Step] = []
    for place, rate in enumerate(steps):
        start_ns = round(place * STEP_S * NS)
        end_ns = min(start_ns + round(STEP_S * NS), inf if until_ns is None else until_ns)
        seconds = (end_ns - start_ns) / NS
        if place and seconds < STEP_S / 2:
            break
        window = (start_ns, start_ns + round(max(seconds, 0.1) * NS))
        found.append(_step(rate, window, lag_ns, by_step.get(place, []), everything))
    return found


def _step(
    rate: float,
    window: tuple[int, int],
    lag_ns: int,
    mine: Sequence[RequestRecord],
    everything: Sequence[RequestRecord],
) -> Step:
    def back(outcome: Outcome, after_ns: int) -> float:
        """So many a second ended so; answers take a while, refusals do not."""
        start_ns, end_ns = window[0] + after_ns, window[1] + after_ns
        return (
            sum(one.outcome is outcome and start_ns <= one.ended_ns < end_ns for one in everything) / seconds
        )

    seconds = (window[1] - window[0]) / NS
    median_ns = _median_ns(mine)
    sent = [one for one in mine if one.outcome is not Outcome.UNSENT]
    late = percentile([max(0, one.sent_ns - one.due_ns) for one in sent], 95) if sent else 0.0
    return Step(
        rate=rate,
        seconds=seconds,
        sent=len(mine),
        answered=back(Outcome.ANSWERED, lag_ns),
        refused=back(Outcome.REJECTED, 0),
        failed=sum(one.outcome in _FAILED for one in sent),
        p50_ms=None if median_ns is None else median_ns / 1e6,
        late_ms=late / 1e6,
    )


_FAILED = frozenset({Outcome.FAILED, Outcome.TRUNCATED, Outcome.EXPIRED})
"""What is still open when the ramp ends has not failed: it is late."""


def _median_ns(records: Iterable[RequestRecord]) -> float | None:
    taken = [one.ended_ns - one.due_ns for one in records if one.outcome is Outcome.ANSWERED]
    return median(taken) if taken else None


def _caller(tenant: Tenant, arrivals: Spec, stream: bool) -> Tenant:
    size = {
        "input_tokens": 24,
        "max_tokens": 3 * OUTPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "stream": stream,
    }
    return Tenant(
        name=tenant.name,
        group=tenant.group,
        service_class=tenant.service_class,
        arrivals=arrivals,
        workload=Spec(kind="fixed", params=size),
        client=Spec(kind="no-retry"),
    )


def _provider(provider: ProviderConfig) -> ProviderConfig:
    """The same models, and no limits."""
    latency = LatencyConfig(
        first_token_ms=min(FIRST_TOKEN_MS, provider.latency.first_token_ms),
        first_token_cv=min(0.25, provider.latency.first_token_cv),
        inter_token_ms=min(INTER_TOKEN_MS, provider.latency.inter_token_ms),
        chunk_ms=provider.latency.chunk_ms,
    )
    return ProviderConfig(
        policy="none",
        models=provider.models,
        any_model=provider.any_model,
        latency=latency,
        seed=provider.seed,
    )


def _gateway(tenants: Iterable[Tenant]) -> GatewayConfig:
    """Of the bundled gateway: nothing that would hold anybody back."""
    classes = {
        name: ClassConfig(max_queue=ROOM, tenant_max_queue=ROOM)
        for name in {t.service_class for t in tenants}
    }
    pool = PoolConfig(slots=ROOM, tenant_slots=ROOM, capacity_units=float(ROOM), classes=classes)
    return GatewayConfig(pools={"calibration": pool})
