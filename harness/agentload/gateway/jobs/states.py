"""The transitions of a job, as functions from one row to the next. PURE.

    QUEUED ──claim──> RUNNING ──step_done──> QUEUED (the next step) │ COMPLETED
      │                  ├──step_failed──> QUEUED (later) │ FAILED (attempts exhausted)
      │                  └──release──> QUEUED (the gateway leaves; counts as nothing)
      └──────── end ─────┴──> FAILED │ EXPIRED │ CANCELLED

Whoever takes a job, or takes it away from its holder, raises the fencing token.
"""

from __future__ import annotations

from msgspec.structs import replace

from agentload.gateway.jobs.model import NS, Job, JobSpec, JobState, StepEnd, StepResult, Verdict

ATTEMPTS_EXHAUSTED = "attempts_exhausted"
SPEND_LIMIT = "spend_limit"
STEP_REFUSED = "step_refused"
LEASE_ORPHANED = "lease_orphaned"
LEASE_LAPSED = "lease_lapsed"
LOST_LEASES = (LEASE_ORPHANED, LEASE_LAPSED)


def accepted(spec: JobSpec, at_ns: int, *, job_id: str, number: int, units: float) -> Job:
    """The first row. `units`: work units of all its steps, as they declare them."""
    return Job(
        id=job_id,
        number=number,
        tenant=spec.tenant,
        service_class=spec.service_class,
        workflow=spec.workflow,
        steps=spec.steps,
        steps_total=len(spec.steps),
        created_at_ns=at_ns,
        deadline_at_ns=at_ns + round(spec.deadline_s * NS),
        max_attempts=spec.max_attempts,
        max_total_tokens=spec.max_total_tokens,
        estimated_units=units,
        key=spec.key,
        digest=spec.digest,
    )


def claim(job: Job, owner: str, leased_until_ns: int) -> Job:
    """Its step is about to be begun: in flight, leased and counted, in one row."""
    return replace(
        job,
        state=JobState.RUNNING,
        owner=owner,
        token=job.token + 1,
        leased_until_ns=leased_until_ns,
        deliveries=job.deliveries + 1,
        not_before_ns=0,
    )


def step_done(job: Job, at_ns: int, result: StepResult) -> Job:
    """The step under way has its result: the next one's turn, or the end."""
    done = replace(
        _freed(job),
        step=job.step + 1,
        results=(*job.results, result),
        total_tokens=job.total_tokens + result.input_tokens + result.output_tokens,
        reason="",
        message="",
    )
    return end(done, at_ns, JobState.COMPLETED) if done.step >= job.steps_total else done


def step_failed(job: Job, at_ns: int, ended: StepEnd, wait_ns: int) -> Job:
    """A delivery failed: again after `wait_ns`, or never when it was the last that is allowed."""
    failed = replace(
        _freed(job),
        failures=job.failures + 1,
        total_tokens=job.total_tokens + ended.input_tokens + ended.output_tokens,
        reason=ended.reason,
        message=ended.message,
        not_before_ns=at_ns + wait_ns if wait_ns else 0,
    )
    if failed.failures < job.max_attempts:
        return failed
    return end(failed, at_ns, JobState.FAILED, ATTEMPTS_EXHAUSTED, f"{ended.reason}: {ended.message}")


def release(job: Job) -> Job:
    """Its holder gives it back unfinished, through no fault of the job's."""
    return replace(_freed(job), token=job.token + 1)


def end(job: Job, at_ns: int, state: JobState, reason: str = "", message: str = "") -> Job:
    """Nothing is done for it any more."""
    return replace(
        _freed(job),
        state=state,
        steps=(),
        token=job.token + 1,
        reason=reason,
        message=message,
        not_before_ns=0,
        ended_at_ns=at_ns,
    )


def expired(job: Job, at_ns: int, reason: str) -> Job:
    """Its deadline has passed, or cannot be met any more. What its last failure said stays said."""
    unmeetable = reason == "deadline_unmeetable"
    passed = "the deadline cannot be met" if unmeetable else "the deadline passed before it was completed"
    return end(job, at_ns, JobState.EXPIRED, reason, job.message or passed)


def orphaned(job: Job, at_ns: int, reason: str, message: str) -> Job:
    """Its holder has died, or has not been heard of for a whole lease: that delivery failed.

    The token goes up, so that the holder, should it come back, is told that it is too late.
    """
    lost = step_failed(job, at_ns, _lost(reason, message), 0)
    return lost if lost.state.ended else replace(lost, token=job.token + 1)


def _lost(reason: str, message: str) -> StepEnd:
    return StepEnd(verdict=Verdict.RETRY, reason=reason, message=message)


def _freed(job: Job) -> Job:
    return replace(job, state=JobState.QUEUED, owner="", leased_until_ns=0)
