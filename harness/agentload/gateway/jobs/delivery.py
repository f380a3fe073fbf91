"""One delivery of a job's step: how long it may take, and what its end makes of the job. PURE."""

from __future__ import annotations

from random import Random

from agentload.gateway.jobs import states
from agentload.gateway.jobs.model import NS, Job, JobState, StepEnd, StepResult, Verdict
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.jobs_config import JobsSettings


class Deliveries:
    """The rules for every delivery of one gateway, as functions from one row to the next.

    All times are Unix times in nanoseconds.
    """

    def __init__(self, settings: JobsSettings, retry: RetryConfig, random: Random) -> None:
        self._settings = settings
        self._retry = retry
        self._random = random

    def patience_s(self, job: Job, at_ns: int) -> float:
        """How long a delivery that is begun now may take: its own timeout, or what the deadline leaves."""
        settings, tool = self._settings, job.steps[job.step].tool
        own_s = settings.step_timeout_s
        if tool is not None:
            own_s = settings.tool_timeout_s if tool.timeout_s is None else tool.timeout_s
        return min(own_s, (job.deadline_at_ns - at_ns) / NS)

    def ended(self, job: Job, at_ns: int, begun_ns: int, end: StepEnd) -> Job:
        """The delivery that was begun at `begun_ns` (0: none was yet) has ended so."""
        match end.verdict:
            case Verdict.DONE:
                return states.step_done(job, at_ns, _result(job, at_ns, begun_ns, end))
            case Verdict.RETRY:
                return self.failed(job, at_ns, end)
            case Verdict.EXPIRED:
                return states.expired(job, at_ns, end.reason)
            case Verdict.REFUSED:
                said = f"{end.reason}: {end.message}"
                return states.end(job, at_ns, JobState.FAILED, states.STEP_REFUSED, said)
            case _:
                return states.release(job)

    def failed(self, job: Job, at_ns: int, end: StepEnd) -> Job:
        """It may be made again, later, as long as attempts and deadline allow."""
        wait_ns = round(max(end.retry_after_s or 0.0, self.backoff_s(job)) * NS)
        failed = states.step_failed(job, at_ns, end, wait_ns)
        if not failed.state.ended and failed.not_before_ns >= failed.deadline_at_ns:
            return states.end(failed, at_ns, JobState.EXPIRED, "deadline_exceeded", failed.message)
        return failed

    def backoff_s(self, job: Job) -> float:
        """Exponential, by failures so far, with the configured jitter."""
        retry = self._retry
        wait_s = min(retry.max_seconds, retry.base_seconds * 2.0 ** min(job.failures, 30))
        return wait_s * self._random.random() if retry.jitter == "full" else wait_s


def _result(job: Job, at_ns: int, begun_ns: int, end: StepEnd) -> StepResult:
    return StepResult(
        step=job.step,
        kind="chat" if job.steps[job.step].chat is not None else "tool",
        status=end.status,
        output=end.output,
        input_tokens=end.input_tokens,
        output_tokens=end.output_tokens,
        seconds=(at_ns - begun_ns) / NS if begun_ns else 0.0,
    )
