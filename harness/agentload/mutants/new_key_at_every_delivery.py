"""The idempotency key of a step changes with its delivery."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.model import Job
from agentload.mutants import Mutant


class NewKeyAtEveryDelivery(Mutant):
    """Each delivery of a step calls its tool with a key of its own, made when it was begun.

    The tool then cannot know that it has done this already: what was under way when a gateway died is done
    twice. (A key made of the attempt, or drawn where the call is made, is this.)
    """

    row = "D13"
    breaks = "a card is charged twice when a gateway dies between the charge and its answer"
    killed_by = "exactly-once"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_NewKeys)


class _NewKeys(JobsCore):
    def step_key(self, job: Job) -> str:
        return f"{super().step_key(job)}:{job.deliveries}"
