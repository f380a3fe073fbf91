"""A step that fails is tried again for as long as its deadline lets it."""

from __future__ import annotations

from msgspec.structs import replace

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs import states
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.delivery import Deliveries
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import Job, StepEnd
from agentload.model import NS
from agentload.mutants import Mutant


class PoisonNeverStops(Mutant):
    """Failed deliveries are not counted, so a job that can never succeed is tried until its deadline.

    Queues without a cap on deliveries have been seen at 1,400 retries of one message.
    """

    row = "D9"
    breaks = "a job that always fails is tried for as long as it lives"
    killed_by = "lease-reclaim"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_CountsNothing)


class _Forgives(Deliveries):
    def failed(self, job: Job, at_ns: int, end: StepEnd) -> Job:
        wait_ns = round(max(end.retry_after_s or 0.0, self.backoff_s(job)) * NS)
        return replace(states.release(job), not_before_ns=at_ns + wait_ns)


class _Forgiven(JobLifecycle):
    deliveries = _Forgives


class _CountsNothing(JobsCore):
    lifecycle = _Forgiven
