"""`choose_next` as published in "The Queue Is Part of the Agent"."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.tenants import State, TenantLane, Ticket
from agentload.scheduler.work import UNIT

QUANTUM = 1.0
MOST_CALLS = 10_000
"""Where it returns a lane instead of a job there is nothing to do but to call it again."""


class ArticleChooseNext(Mutant):
    """Deficit accounting that credits every lane on every call, instead of once a round.

    Each call adds 10 credits to weights 5, 3 and 2, and a job takes only its own cost: with jobs smaller than
    that the heaviest lane always has most credit left, and is served alone.
    """

    row = "F8"
    breaks = "with small jobs the tenant of the largest weight is served alone"
    killed_by = "weighted-share"
    profile = "weighted-fair"

    def parts(self) -> Parts:
        return Parts(policy=_AsPublished)


class _AsPublished(FairQueue):
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
        head = self.head()
        return head if head is not None and head.width <= room else None

    def started(self, ticket: Ticket) -> None:
        tenant = ticket.lane.tenant
        self._deficits[tenant] = self._deficits.get(tenant, 0.0) - ticket.work / UNIT
        self._chosen = None

    def _choose_next(self) -> Ticket | None:
        active = [lane for lane in self.lanes.values() if lane.waiting and not lane.blocked]
        for _ in range(MOST_CALLS if active else 0):
            for lane in active:
                self._deficits[lane.tenant] = self._deficits.get(lane.tenant, 0.0) + lane.weight * QUANTUM
            candidates = [lane for lane in active if self._deficits[lane.tenant] >= _first(lane).work / UNIT]
            if candidates:
                return _first(max(candidates, key=lambda lane: self._deficits[lane.tenant]))
        return None


def _first(lane: TenantLane) -> Ticket:
    return next(iter(lane.waiting.values()))
