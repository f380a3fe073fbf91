"""One request of each tenant in turn: fair in requests, not in work."""

from __future__ import annotations

from typing import ClassVar

from agentload.scheduler.policies._ring import Ring, oldest
from agentload.scheduler.tenants import TenantLane, Ticket


class RoundRobin(Ring):
    """One request of each tenant in turn, whatever it costs and whatever the tenant weighs.

    Lacks accounts: weights are ignored, a tenant with requests ten times as dear gets ten times the work, and
    nothing is owed after a wrong estimate. Bounds, cap and eviction are the reference's, so that a comparison
    shows what counting work instead of requests is worth.
    """

    tenant_bound: ClassVar[bool] = True
    tenant_cap: ClassVar[bool] = True
    evicts: ClassVar[bool] = True

    def head(self) -> Ticket | None:
        """The oldest of the lane whose turn it is."""
        lane = next(iter(self._ring.values()), None)
        return None if lane is None else oldest(lane)

    def started(self, ticket: Ticket) -> None:
        """Its turn is over."""
        lane = ticket.lane
        if lane.waiting:
            self._ring.move_to_end(lane.tenant)
        else:
            self.left(lane)

    def part(self, lane: TenantLane) -> float:  # noqa: ARG002 - weights are ignored
        """One of those in the ring."""
        return 1 / max(1, len(self._ring))

    def ahead(self, ticket: Ticket) -> float:
        """A request of every tenant for each of its own before it, at the mean work of those that wait."""
        calls = (len(ticket.lane.waiting) - 1) * max(1, len(self._ring))
        return min(self.work - ticket.work, calls * self.work / len(self.waiting))
