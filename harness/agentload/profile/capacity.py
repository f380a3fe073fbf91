"""What a profile's provider can do, in calls per second. Pure; estimates from draws of the workloads."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean

from agentload import workloads
from agentload.model import Job, Profile, Tenant
from fake_provider.config import LatencyConfig, ProviderConfig

DRAWS = 64


def jobs_of(tenant: Tenant) -> list[Job]:
    """A sample of what it sends; nothing of users of somebody's own code."""
    if tenant.workload is None:
        return []
    workload, random = workloads.make(tenant.workload), Random(f"capacity/{tenant.name}")
    return [workload.draw(random, 0) for _ in range(DRAWS)]


def jobs_in(profile: Profile) -> list[Job]:
    """A sample of all, tenant by tenant."""
    return [job for tenant in profile.tenants[:DRAWS] for job in jobs_of(tenant)]


def service_s(latency: LatencyConfig, jobs: Sequence[Job]) -> float:
    """How long a call is in service, on average."""
    tokens = fmean(job.output_tokens for job in jobs)
    prefill = latency.prefill_ms_per_1000_tokens * fmean(job.input_tokens for job in jobs) / 1_000
    mean_ms = latency.first_token_ms + prefill + latency.inter_token_ms * max(0.0, tokens - 1)
    return max(mean_ms, 1.0) / 1_000


def by_slots(provider: ProviderConfig, jobs: Sequence[Job]) -> float | None:
    """Calls per second that its slots allow; None without any bound."""
    return None if provider.slots is None or not jobs else provider.slots / service_s(provider.latency, jobs)


def by_limits(provider: ProviderConfig, jobs: Sequence[Job]) -> float | None:
    """Calls per second that its limits on tokens and calls allow; None without any."""
    if provider.policy == "none" or not jobs:
        return None
    costs = (
        (provider.requests_per_minute, 1.0),
        (provider.tokens_per_minute, fmean(_charge(job) for job in jobs)),
        (provider.input_tokens_per_minute, fmean(job.input_tokens for job in jobs)),
        (provider.output_tokens_per_minute, fmean(job.output_tokens for job in jobs)),
    )
    return min((limit / 60 / cost for limit, cost in costs if limit is not None), default=None)


def _charge(job: Job) -> float:
    """As OpenAI counts: the longer of what may be produced and a quarter of the prompt's characters."""
    return max(job.declared_output_tokens or job.output_tokens, job.input_tokens)
