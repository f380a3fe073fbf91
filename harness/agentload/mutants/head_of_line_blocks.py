"""The first in line may not go yet, so nobody goes."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane, Ticket


class HeadOfLineBlocks(Mutant):
    """A tenant at its cap keeps its turn, and everybody behind it waits while slots are free.

    What happens wherever a limit is checked after the job has been taken from the queue and the job is put
    back at its head.
    """

    row = "F14"
    breaks = "slots stay empty while work that could use them waits behind work that may not"
    killed_by = "work-conserving"
    profile = "long-jobs"

    def parts(self) -> Parts:
        return Parts(policy=_NobodyPasses)


class _NobodyPasses(StartTimeFairQueue):
    def left(self, lane: TenantLane) -> None:
        """A lane at its cap stays where it is in the order."""
        if not (lane.blocked and lane.waiting):
            super().left(lane)

    def head(self) -> Ticket | None:
        first = super().head()
        return None if first is None or first.lane.blocked else first
