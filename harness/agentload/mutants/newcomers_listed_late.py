"""Whoever is new is served when the list of tenants is next read."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane, Ticket

EVERY_STARTS = 3_000


class NewcomersListedLate(Mutant):
    """The tenants among whom work is shared are a snapshot, taken anew after some thousand calls.

    A cached view of who is there (a refresh interval, a learning period, a scrape) decides for as long as it
    is cached: shares are right in a steady state, and wrong whenever somebody joins.
    """

    row = "F23"
    breaks = "a tenant that joins gets nothing for many seconds"
    killed_by = "rebalance"
    profile = "tenant-churn"

    def parts(self) -> Parts:
        return Parts(policy=_Snapshot)


class _Snapshot(StartTimeFairQueue):
    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self._known: set[str] = set()
        self._starts = 0

    def head(self) -> Ticket | None:
        """When nobody known has work, everybody is looked at."""
        return super().head() or self._refreshed()

    def joined(self, lane: TenantLane) -> None:
        lane.lift(self.join_at(lane))
        if lane.tenant in self._known:
            self._list(lane)

    def started(self, ticket: Ticket) -> None:
        super().started(ticket)
        self._starts += 1
        if self._starts % EVERY_STARTS == 0:
            self._refreshed()

    def _refreshed(self) -> Ticket | None:
        self._known = {lane.tenant for lane in self.lanes.values()}
        for lane in self.lanes.values():
            if lane.waiting and not lane.blocked and not lane.entry:
                lane.lift(self.join_at(lane))
                self._list(lane)
        return super().head()
