"""The queue has one bound, and the noisy tenant is always first to fill it."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue


class OneBoundForAll(Mutant):
    """A shared counter of waiting requests: no bound per tenant, and a full queue drops the newcomer."""

    row = "F19"
    breaks = "a tenant under its share is refused because another one has filled the queue"
    killed_by = "victim-goodput"
    profile = "noisy-neighbor"

    def parts(self) -> Parts:
        return Parts(policy=_SharedBound)


class _SharedBound(StartTimeFairQueue):
    tenant_bound: ClassVar[bool] = False
    evicts: ClassVar[bool] = False
