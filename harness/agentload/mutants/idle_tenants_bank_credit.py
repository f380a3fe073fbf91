"""Who sleeps saves up turns, and takes them all at once on waking."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane


class IdleTenantsBankCredit(Mutant):
    """A tenant that returns joins where it left in virtual time, not where everybody else is by now.

    Kubernetes' API server had it (virtual start times that lagged without bound): the tenants that had been
    there all the time got next to nothing until the newcomer had caught up.
    """

    row = "F5"
    breaks = "a tenant that was away takes far more than its share when it comes back"
    killed_by = "idle-credit"
    profile = "tenant-churn"

    def parts(self) -> Parts:
        return Parts(policy=_NoLift)

    def half(self) -> Parts:
        return Parts(policy=_HalfALift)


class _NoLift(StartTimeFairQueue):
    def joined(self, lane: TenantLane) -> None:
        self._list(lane)


class _HalfALift(StartTimeFairQueue):
    def joined(self, lane: TenantLane) -> None:
        lane.lift((lane.tag + self.join_at(lane)) / 2)
        self._list(lane)
