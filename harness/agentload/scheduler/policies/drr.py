"""Deficit round-robin by work: fair without virtual time, and O(1)."""

from __future__ import annotations

from typing import ClassVar

from agentload.scheduler.policies._ring import Ring, oldest
from agentload.scheduler.tenants import TenantLane, Ticket


class DeficitRoundRobin(Ring):
    """Lanes in turn; a turn is worth a quantum of credit per weight, and a job costs its work.

    Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", SIGCOMM 1995. The quantum of a
    round is the largest work per weight of the jobs that are next in their lanes when it begins, so that a
    turn pays for at least one job: no spinning, O(1). A lane that empties loses its credit and keeps its
    debt; one in debt keeps its place in the ring until its turns have paid for it, idle or not.

    Lacks no safeguard, but is coarser than `sfq`: for two tenants with work waiting, |Wi/wi - Wj/wj| may be
    larger by a whole quantum, a tenant that comes now and then waits for a full round, and one at its cap
    loses the turns that it cannot take.
    """

    tenant_bound: ClassVar[bool] = True
    tenant_cap: ClassVar[bool] = True
    evicts: ClassVar[bool] = True

    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self.quantum = 0.0
        """Micro-units of credit per weight and turn, the same for a whole round; 0 before the first."""
        self.credit: dict[str, float] = {}
        """Micro-units by tenant; negative: debt. A tenant without an entry has neither."""
        self._ready: set[str] = set()
        """Lanes of the ring that have something to pick; the others are in debt. Never iterated."""
        self._on: set[str] = set()
        """Lanes whose turn has begun and is not over. Never iterated."""
        self._round = 0
        """`lane.entry` is the round in which the lane last had its credit."""

    # -- order

    def head(self) -> Ticket | None:
        """The oldest ticket of the first lane in turn that can pay for it."""
        ring = self._ring
        while self._ready:
            tenant, lane = next(iter(ring.items()))
            if tenant not in self._ready:
                self._earn(lane)
                if self.credit[tenant] >= 0:
                    self._paid_up(lane)
                    continue
            else:
                if tenant not in self._on:
                    self._earn(lane)
                    self._on.add(tenant)
                ticket = oldest(lane)
                if self.credit[tenant] >= ticket.work:
                    return ticket
                self._on.discard(tenant)
            ring.move_to_end(tenant)
        return None

    def joined(self, lane: TenantLane) -> None:
        """At the end of the ring; one that is in debt has kept its place."""
        super().joined(lane)
        if not self._ready:
            self.quantum = 0.0
        self._ready.add(lane.tenant)

    def resumed(self, lane: TenantLane) -> None:
        """Go on with the turn that its cap interrupted, or wait for the next one."""
        self.joined(lane)
        if lane.tenant in self._on:
            self._ring.move_to_end(lane.tenant, last=False)

    def left(self, lane: TenantLane) -> None:
        """Nothing to pick: empty, or at its cap."""
        self._ready.discard(lane.tenant)
        if lane.waiting:
            super().left(lane)
        else:
            self._emptied(lane)

    def ahead(self, ticket: Ticket) -> float:
        """All that waits; or its own lane's work and debt at the lane's part of the rate, if that is less."""
        lane = ticket.lane
        own = lane.work - ticket.work + max(0.0, -self.credit.get(lane.tenant, 0.0))
        return min(self.work - ticket.work, own / self.part(lane))

    # -- accounts

    def started(self, ticket: Ticket) -> None:
        """Charge the estimate."""
        lane = ticket.lane
        ticket.epoch = lane.epoch
        self.credit[lane.tenant] = self.credit.get(lane.tenant, 0.0) - ticket.work
        if not lane.waiting:
            self._ready.discard(lane.tenant)
            self._emptied(lane)

    def charge(self, ticket: Ticket, work: int) -> None:
        """Charge the overrun, or refund what was not used.

        A lane that has emptied since has lost its credit: a refund then pays off its debt and no more, or one
        over-estimated job could buy hundreds of turns.
        """
        lane = ticket.lane
        before = self.credit.get(lane.tenant, 0.0)
        after = before - work
        if work < 0 and ticket.epoch != lane.epoch:
            after = min(after, max(before, 0.0))
        self.credit[lane.tenant] = after
        if not lane.waiting:
            self._keep_or_drop(lane)

    def _earn(self, lane: TenantLane) -> None:
        """The credit of a turn; all have had theirs when it is the turn of one that has had it."""
        if lane.entry == self._round or not self.quantum:
            self._round += 1
            self.quantum = self._largest()
        lane.entry = self._round
        self.credit[lane.tenant] = self.credit.get(lane.tenant, 0.0) + self.quantum * lane.weight

    def _largest(self) -> float:
        """Work per weight of the largest job that is next in its lane. Looks at every lane, once a round."""
        lanes = self._ring.values()
        return max(oldest(lane).work / lane.weight for lane in lanes if lane.tenant in self._ready)

    def _emptied(self, lane: TenantLane) -> None:
        """Its turn is over. Credit is lost, debt is kept."""
        self._on.discard(lane.tenant)
        lane.epoch += 1
        self._keep_or_drop(lane)
        if lane.tenant in self._ring:
            self._ring.move_to_end(lane.tenant)

    def _keep_or_drop(self, lane: TenantLane) -> None:
        """A lane with nothing waiting stays in the ring while it is in debt."""
        if self.credit.get(lane.tenant, 0.0) < 0:
            super().joined(lane)
        else:
            self._drop(lane)

    def _drop(self, lane: TenantLane) -> None:
        self.credit.pop(lane.tenant, None)
        super().left(lane)

    # -- forgetting

    def may_forget(self, lane: TenantLane) -> bool:
        """One in debt is kept until its turns have paid for it."""
        return lane.tenant not in self.credit

    def make_room(self) -> bool:
        """Forget the idle lane with the least debt."""
        idle = [lane for lane in self._ring.values() if lane.idle]
        if not idle:
            return False
        self._paid_up(max(idle, key=lambda lane: self.credit[lane.tenant]))
        return True

    def _paid_up(self, lane: TenantLane) -> None:
        self._drop(lane)
        if lane.idle:
            self._perhaps_forget(lane)
