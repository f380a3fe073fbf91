"""First come, first served, but no tenant has more than so many waiting or in flight."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar

from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies._ring import oldest
from agentload.scheduler.tenants import TenantLane, Ticket


class TenantCap(FairQueue):
    """First come, first served among the tenants below their cap: fifo with a bound and a cap per tenant.

    Lacks fairness (below their caps whoever sends most is served most, whatever it weighs), accounts, and
    eviction: with as many noisy tenants as fill the queue, a quiet one's newcomer is dropped. A wide job at
    the head keeps everybody waiting until it fits.
    """

    tenant_bound: ClassVar[bool] = True
    tenant_cap: ClassVar[bool] = True
    evicts: ClassVar[bool] = False

    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self._arrived = 0
        self._places: dict[int, int] = {}
        """By request id: its place in the order of arrival, from 1."""
        self._heap: list[tuple[int, TenantLane]] = []
        """Lanes by the place of their oldest ticket. An entry that is not its lane's current one is dead."""

    def head(self) -> Ticket | None:
        """The oldest of all tenants that are not at their cap."""
        heap = self._heap
        while heap:
            place, lane = heap[0]
            if lane.entry == place:
                return oldest(lane)
            heappop(heap)
        return None

    def head_within(self, room: int) -> Ticket | None:
        """The oldest if it fits, else nobody."""
        head = self.head()
        return head if head is not None and head.width <= room else None

    def push(self, ticket: Ticket) -> None:
        """Wait at the end."""
        self._arrived += 1
        self._places[ticket.request.id] = self._arrived
        super().push(ticket)

    def joined(self, lane: TenantLane) -> None:
        """List it by its oldest ticket. (Equal places are the same lane's: lanes are never compared.)"""
        lane.entry = self._places[oldest(lane).request.id]
        heappush(self._heap, (lane.entry, lane))

    def left(self, lane: TenantLane) -> None:
        """Off the list; its entry dies."""
        lane.entry = 0

    def started(self, ticket: Ticket) -> None:
        """The next one of its lane stands further back."""
        self._moved_up(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Leave unserved, from wherever in the line."""
        super().remove(ticket)
        self._moved_up(ticket)

    def _moved_up(self, ticket: Ticket) -> None:
        place, lane = self._places.pop(ticket.request.id), ticket.lane
        if lane.entry == place:
            if lane.waiting:
                self.joined(lane)
            else:
                self.left(lane)
