"""What a naive gateway does: one queue for everybody."""

from __future__ import annotations

from typing import ClassVar

from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.tenants import Ticket


class Fifo(FairQueue):
    """First come, first served, whoever comes.

    Lacks everything: no fairness (a flood is served before whoever comes after it), no bound on what one
    tenant has waiting, no cap on what it has in flight, the newcomer is dropped when the queue is full,
    nothing is charged, and a wide job at the head keeps everybody waiting until it fits.
    """

    tenant_bound: ClassVar[bool] = False
    tenant_cap: ClassVar[bool] = False
    evicts: ClassVar[bool] = False

    def head(self) -> Ticket | None:
        """The oldest."""
        return next(iter(self.waiting.values()), None)

    def head_within(self, room: int) -> Ticket | None:
        """The oldest if it fits, else nobody."""
        head = self.head()
        return head if head is not None and head.width <= room else None
