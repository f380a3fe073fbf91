"""The search for the next tenant always begins at the top of the list."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import Ticket


class FirstTenantFirst(Mutant):
    """A round-robin that forgets where it was: while the first tenant has work, nobody else is looked at."""

    row = "F7"
    breaks = "who registered first is served first, every time"
    killed_by = "weighted-share"
    profile = "weighted-fair"

    def parts(self) -> Parts:
        return Parts(policy=_FromTheTop)

    def half(self) -> Parts:
        return Parts(policy=_FromTheTopEverySecondTime)


class _FromTheTop(StartTimeFairQueue):
    def head(self) -> Ticket | None:
        for lane in self.lanes.values():
            if lane.waiting and not lane.blocked:
                return next(iter(lane.waiting.values()))
        return None


class _FromTheTopEverySecondTime(_FromTheTop):
    starts = 0

    def head(self) -> Ticket | None:
        return super().head() if self.starts % 2 else StartTimeFairQueue.head(self)

    def started(self, ticket: Ticket) -> None:
        super().started(ticket)
        self.starts += 1
