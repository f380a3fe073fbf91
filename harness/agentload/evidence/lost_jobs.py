"""Accepted jobs that never ended: lost, or only late."""

from __future__ import annotations

from agentload.evidence.durable import accepted
from agentload.model import JobRecord, Run
from agentload.promises import Truth


def late_jobs(run: Run) -> set[int]:
    """Numbers of those that may still end, for a gateway that promises no deadlines keeps some longer."""
    return set() if run.knows(Truth.DEADLINES) else _under_way(accepted(run))


def lost_jobs(run: Run) -> list[JobRecord]:
    """Those that had not ended when they were asked for after their deadline, and are not late."""
    late = late_jobs(run)
    unended = [job for job in accepted(run) if job.state is None]
    return [job for job in unended if _was_awaited(job) and job.seq not in late]


def _was_awaited(job: JobRecord) -> bool:
    """The gateway was asked for it when it must have ended, and answered."""
    return job.answered_ns is not None and job.answered_ns >= job.deadline_ns


def _under_way(jobs: list[JobRecord]) -> set[int]:
    """Numbers of jobs that the last answer showed as open, and that no later one of their tenant overtook."""
    shown = [job for job in jobs if job.state is None and job.shown_ns == job.answered_ns]
    return {job.seq for job in shown if not any(_overtook(other, job) for other in jobs)}


def _overtook(other: JobRecord, job: JobRecord) -> bool:
    """Whether the other was accepted later, and had ended when the job was last asked for."""
    return (
        other.tenant == job.tenant
        and other.state is not None
        and (other.accepted_ns or 0) > (job.accepted_ns or 0)
        and (other.ended_ns or 0) <= (job.shown_ns or -1)
    )
