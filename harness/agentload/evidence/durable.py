"""Durable jobs beside what was done to the gateway: which were touched, and who called what again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentload.evidence.history import counted_phases
from agentload.faults import FaultWindow, fault_windows, is_gateways
from agentload.model import NS, JobOrder, JobRecord, JobStep, Profile, Run, ToolRecord


def accepted(run: Run) -> list[JobRecord]:
    """Jobs of the counted phases that were given a 202."""
    phases = set(counted_phases(run))
    return [job for job in run.jobs if job.accepted_ns is not None and job.phase in phases]


def gateway_faults(run: Run) -> list[FaultWindow]:
    """What was done to the gateway, in order."""
    return [window for window in fault_windows(run.profile) if is_gateways(window.kind)]


def orders(profile: Profile) -> dict[str, JobOrder]:
    """Tenant → what its jobs consist of."""
    return {tenant.name: tenant.job for tenant in profile.tenants if tenant.job is not None}


def end_ns(job: JobRecord) -> int:
    """Until when the job is known to have been open."""
    return next(at for at in (job.ended_ns, job.gave_up_ns, job.deadline_ns) if at is not None)


def open_at(job: JobRecord, at_ns: int) -> bool:
    """Whether it had been accepted by then, and had not ended."""
    return job.accepted_ns is not None and job.accepted_ns <= at_ns < end_ns(job)


def touched(job: JobRecord, faults: Iterable[FaultWindow], after_s: float) -> bool:
    """Whether a fault, or the `after_s` after it, fell into the job's life."""
    return any(
        job.due_ns < fault.end_ns + round(after_s * NS) and fault.start_ns < end_ns(job) for fault in faults
    )


def by_ref(tools: Iterable[ToolRecord]) -> dict[str, list[ToolRecord]]:
    """Calls by the client's own name of the step, in order of arrival; those without a name are left out."""
    found: dict[str, list[ToolRecord]] = {}
    for call in tools:
        if call.ref is not None:
            found.setdefault(call.ref, []).append(call)
    return found


def step_of(orders_of: dict[str, JobOrder], jobs: dict[int, JobRecord], ref: str) -> JobStep | None:
    """What the profile says of a named step; None for a name that is not a client's."""
    seq, _, index = ref.partition(":")
    if not (seq.isdecimal() and index.isdecimal() and int(seq) in jobs):
        return None
    steps: Sequence[JobStep] = orders_of[jobs[int(seq)].tenant].steps
    return steps[int(index)] if int(index) < len(steps) else None
