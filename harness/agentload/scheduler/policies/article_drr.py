"""`choose_next` as published in "The Queue Is Part of the Agent", flaws and all."""

from __future__ import annotations

from typing import ClassVar

from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies._ring import oldest
from agentload.scheduler.tenants import State, Ticket
from agentload.scheduler.work import UNIT

QUANTUM = 1.0
MOST_CALLS = 10_000
"""Where it returns a lane instead of a job there is nothing to do but to call it again."""


class ArticleDrr(FairQueue):
    """The article's `choose_next` as published: credit for every lane on every call, most credit first.

    Lacks what makes deficit round-robin fair. Every call adds quantum x weight to every lane and takes only
    one job's work from one of them, so that with jobs smaller than that the largest weight is served alone
    (5/3/2 give 100/0/0). Deficits have no bound and are not cleared when a lane empties: an idle tenant's
    credit is banked, and a tenant that comes late waits for all that the others have saved up. Only the
    estimate is charged, nothing is settled, and every choice looks at every lane. Bounds, cap and eviction
    are the reference's.
    """

    tenant_bound: ClassVar[bool] = True
    tenant_cap: ClassVar[bool] = True
    evicts: ClassVar[bool] = True

    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self._deficits: dict[str, float] = {}
        self._chosen: Ticket | None = None

    def head(self) -> Ticket | None:
        """One call of `choose_next` for each job: what it chose stays chosen until it has started."""
        chosen = self._chosen
        if chosen is None or chosen.state is not State.WAITING or chosen.lane.blocked:
            self._chosen = self._choose_next()
        return self._chosen

    def head_within(self, room: int) -> Ticket | None:
        """What was chosen if it fits, else nobody."""
        head = self.head()
        return head if head is not None and head.width <= room else None

    def started(self, ticket: Ticket) -> None:
        """Charge the estimate."""
        tenant = ticket.lane.tenant
        self._deficits[tenant] = self._deficits.get(tenant, 0.0) - ticket.work / UNIT
        self._chosen = None

    def _choose_next(self) -> Ticket | None:
        active = [lane for lane in self.lanes.values() if lane.waiting and not lane.blocked]
        for _ in range(MOST_CALLS if active else 0):
            for lane in active:
                self._deficits[lane.tenant] = self._deficits.get(lane.tenant, 0.0) + lane.weight * QUANTUM
            candidates = [lane for lane in active if self._deficits[lane.tenant] >= oldest(lane).work / UNIT]
            if candidates:
                return oldest(max(candidates, key=lambda lane: self._deficits[lane.tenant]))
        return None
