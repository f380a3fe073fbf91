"""How much a profile asks for at its busiest, and how much its provider can do. Pure; estimates.

Counted are first attempts: how often refused clients come again depends on what they are told. Users of
somebody's own code are left out: nobody knows what they send.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import fmean

import msgspec

from agentload import workloads
from agentload.model import NS, Job, Plan, Profile, Tenant
from agentload.plan import is_active
from fake_provider.config import LatencyConfig, ProviderConfig

WINDOW_NS = 2 * NS
"""The busiest stretch of so long counts: shorter bursts wait a moment, in any gateway."""
DRAWS = 64


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
        tenant.users / (tenant.think_s + _service_s(profile.provider.latency, _jobs(tenant)))
        for tenant in profile.tenants
        if tenant.users is not None and is_active(tenant, phase)
    )
    return rate if capacity is None else min(rate, capacity)


def _capacity(profile: Profile) -> float | None:
    """By what binds first, for the profile's requests as they come, tenant by tenant."""
    jobs = [job for tenant in profile.tenants[:DRAWS] for job in _jobs(tenant)]
    limits = _limits(profile.provider, jobs) if jobs else []
    return min(limits) if limits else None


def _limits(provider: ProviderConfig, jobs: list[Job]) -> list[float]:
    found: list[float] = []
    if provider.slots is not None:
        found.append(provider.slots / _service_s(provider.latency, jobs))
    if provider.policy == "none":
        return found
    if provider.requests_per_minute is not None:
        found.append(provider.requests_per_minute / 60)
    if provider.tokens_per_minute is not None:
        found.append(provider.tokens_per_minute / 60 / fmean(_charge(job) for job in jobs))
    if provider.input_tokens_per_minute is not None:
        found.append(provider.input_tokens_per_minute / 60 / fmean(job.input_tokens for job in jobs))
    if provider.output_tokens_per_minute is not None:
        found.append(provider.output_tokens_per_minute / 60 / fmean(job.output_tokens for job in jobs))
    return found


def _charge(job: Job) -> float:
    """As OpenAI counts: the longer of what may be produced and a quarter of the prompt's characters."""
    return max(job.declared_output_tokens or job.output_tokens, job.input_tokens)


def _service_s(latency: LatencyConfig, jobs: list[Job]) -> float:
    tokens = fmean(job.output_tokens for job in jobs)
    prefill = latency.prefill_ms_per_1000_tokens * fmean(job.input_tokens for job in jobs) / 1_000
    mean_ms = latency.first_token_ms + prefill + latency.inter_token_ms * max(0.0, tokens - 1)
    return max(mean_ms, 1.0) / 1_000


def _jobs(tenant: Tenant) -> list[Job]:
    if tenant.workload is None:
        return []
    workload, random = workloads.make(tenant.workload), Random(f"demand/{tenant.name}")
    return [workload.draw(random, 0) for _ in range(DRAWS)]
