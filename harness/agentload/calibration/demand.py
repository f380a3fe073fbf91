"""How much a profile asks for at its busiest, and how much its provider can do. Pure; estimates.

Counted are first attempts: how often refused clients come again depends on what they are told. Users of
somebody's own code are left out: nobody knows what they send.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from agentload.model import NS, Plan, Profile
from agentload.plan import is_active
from agentload.profile.capacity import by_limits, by_slots, jobs_in, jobs_of, service_s

WINDOW_NS = 2 * NS
"""The busiest stretch of so long counts: shorter bursts wait a moment, in any gateway."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per second."""

    peak_per_s: float
    """What is asked for at the busiest."""
    capacity_per_s: float | None
    """What the provider can do of it; None where it has no limit."""


def demand_of(profile: Profile, plan: Plan) -> Demand:
    """From the plan's arrivals and what closed loops can send."""
    capacity = _capacity(profile)
    ends_ns = [profile.phase_window_ns(phase.name)[1] for phase in profile.phases]
    planned = Counter(arrival.due_ns // WINDOW_NS for arrival in plan.arrivals)
    windows = range(max(1, -(-ends_ns[-1] // WINDOW_NS)))
    closed = {phase.name: _closed_rate(profile, phase.name, capacity) for phase in profile.phases}
    peak = max(
        planned[window] * NS / WINDOW_NS + closed[_phase_at(profile, ends_ns, window * WINDOW_NS)]
        for window in windows
    )
    return Demand(peak_per_s=max(peak, 1.0), capacity_per_s=capacity)


def _phase_at(profile: Profile, ends_ns: list[int], at_ns: int) -> str:
    return next(phase.name for phase, end_ns in zip(profile.phases, ends_ns, strict=True) if at_ns < end_ns)


def _closed_rate(profile: Profile, phase: str, capacity: float | None) -> float:
    """Users that never wait for anything but the provider, and all together no more than it can do."""
    rate = sum(
        tenant.users / (tenant.think_s + service_s(profile.provider.latency, jobs_of(tenant)))
        for tenant in profile.tenants
        if tenant.users is not None and is_active(tenant, phase)
    )
    return rate if capacity is None else min(rate, capacity)


def _capacity(profile: Profile) -> float | None:
    """By what binds first."""
    jobs = jobs_in(profile)
    found = (by_slots(profile.provider, jobs), by_limits(profile.provider, jobs))
    return min((one for one in found if one is not None), default=None)
