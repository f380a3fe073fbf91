"""Shortest job first, by estimated work: the best mean latency, and no fairness at all."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import ClassVar

from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.tenants import Ticket


class ShortestJobFirst(FairQueue):
    """Shortest estimated work first, whoever it is from; equal ones in order of arrival.

    Lacks fairness: who sends short jobs, or says so, is always served first, and a long one waits for as long
    as shorter ones keep coming. No bound and no cap per tenant, the newcomer is dropped when the queue is
    full, and a wrong estimate costs nobody anything.
    """

    tenant_bound: ClassVar[bool] = False
    tenant_cap: ClassVar[bool] = False
    evicts: ClassVar[bool] = False

    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self._arrived = 0
        self._heap: list[tuple[int, int, Ticket]] = []
        """By (work, order of arrival); those that wait no longer are dead."""

    def head(self) -> Ticket | None:
        """The shortest."""
        heap = self._heap
        while heap:
            ticket = heap[0][2]
            if self._waits(ticket):
                return ticket
            heappop(heap)
        return None

    def head_within(self, room: int) -> Ticket | None:
        """The shortest if it fits: if it does not, no other does."""
        head = self.head()
        return head if head is not None and head.width <= room else None

    def push(self, ticket: Ticket) -> None:
        """Wait."""
        super().push(ticket)
        self._arrived += 1
        heappush(self._heap, (ticket.work, self._arrived, ticket))
        if len(self._heap) > 64 + 2 * len(self.waiting):
            # Long ones that left unserved would never surface.
            self._heap = [entry for entry in self._heap if self._waits(entry[2])]
            heapify(self._heap)

    def ahead(self, ticket: Ticket) -> float:
        """All that is no longer than it. (What comes later and is shorter cannot be known.)"""
        return sum(other.work for other in self.waiting.values() if other.work <= ticket.work) - ticket.work

    def _waits(self, ticket: Ticket) -> bool:
        return self.waiting.get(ticket.request.id) is ticket
