"""The jobs in numbers: for /metrics and /debug/jobs. PURE."""

from __future__ import annotations

from typing import Any

import msgspec

from agentload.gateway.job_figures import JobFigures
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.model import NS, JobState


def figures(jobs: JobsCore, now_ns: int) -> JobFigures:
    """What the metrics want to know."""
    at_ns, counters = now_ns + jobs.wall_offset_ns, jobs.counters
    waiting = jobs.lanes.waiting_in_all()
    oldest_ns = min(
        (jobs.registry.by_number[n].job.created_at_ns for n in jobs.lanes.oldest()), default=at_ns
    )
    lease_ns = round(jobs.settings.lease_s * NS)
    heard_ns = min((one.job.leased_until_ns - lease_ns for one in jobs.leased), default=at_ns)
    return JobFigures(
        states=states(jobs, at_ns),
        waiting=waiting,
        oldest_wait_ns=max(0, at_ns - oldest_ns),
        lease_age_ns=max(0, at_ns - heard_ns),
        reclaims=counters.reclaimed,
        retries=counters.retried,
        step_limits=counters.overspent,
        tool_calls=counters.tool_calls,
        tool_ns=counters.tool_ns,
    )


def states(jobs: JobsCore, at_ns: int) -> dict[str, int]:
    """Jobs by state: those that are open now, and those that have ended since the process began."""
    counters, running = jobs.counters, len(jobs.leased)
    deferred = jobs.lanes.paused(at_ns)
    return {
        JobState.QUEUED: max(0, jobs.registry.open - running - deferred),
        JobState.DEFERRED: deferred,
        JobState.RUNNING: running,
        JobState.COMPLETED: counters.completed,
        JobState.FAILED: counters.failed,
        JobState.EXPIRED: counters.expired,
        JobState.CANCELLED: counters.cancelled,
    }


def view(jobs: JobsCore, now_ns: int) -> dict[str, Any]:
    """GET /debug/jobs."""
    return {
        "now_ns": now_ns,
        "open": jobs.registry.open,
        "kept": jobs.registry.ended,
        "bytes": jobs.registry.bytes,
        **msgspec.structs.asdict(figures(jobs, now_ns)),
        "counters": jobs.counters,
    }
