"""Start-time fair queueing by work: the reference."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import ClassVar

from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.tenants import TenantLane, Ticket
from agentload.scheduler.work import UNIT

LOOK_AHEAD = 8
"""How many tenants are looked at behind a job that does not fit: enough to keep the pool busy, few enough to
stay cheap with many tenants."""


CATCH_UP = 4
"""A tenant at its cap may fall behind by so many times what it has in service, and catch up later. With less
than that, one that is due just what its cap allows loses a part of it at every turn it cannot take (with 1,
4 % of it); without a bound, one that is due more than its cap would save up turns without end."""


class StartTimeFairQueue(FairQueue):
    """The tenant with the least tag goes next; its tag then moves on by work / weight. Lacks no safeguard.

    For two tenants that both have work waiting, |Wi/wi - Wj/wj| <= (C+1)(cmax_i/wi + cmax_j/wj) with C calls
    in service (Goyal et al., SIGCOMM 1996; Jin, Chase, Kaur, "Interposed proportional sharing", 2004).
    """

    tenant_bound: ClassVar[bool] = True
    tenant_cap: ClassVar[bool] = True
    evicts: ClassVar[bool] = True
    sleeper_credit: ClassVar[int] = 2 * UNIT
    """How far behind the work clock a tenant may join, in micro-units (per weight). It keeps a sparse
    tenant's latency low, and a flood of new tenants delays an old one by no more than this, once."""

    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self._heap: list[tuple[float, int, TenantLane]] = []
        """Lanes to pick from, by (tag, entry). An entry that is not its lane's current one is dead."""
        self._idle: list[tuple[float, int, TenantLane]] = []
        """Idle lanes that are still in debt, by tag."""
        self._seq = 0
        self.v = 0.0
        """Virtual time: the largest tag that has been picked."""
        self._clock = 0.0
        """Work done per weight of those that were active: how far a tenant would be that was always there."""
        self._active_weight = 0.0
        self._active = 0

    # -- order

    def head(self) -> Ticket | None:
        """The oldest ticket of the lane with the least tag; who was listed first wins a tie."""
        heap = self._heap
        while heap:
            tag, entry, lane = heap[0]
            if lane.entry != entry:
                heappop(heap)
            elif lane.tag != tag:
                heapreplace(heap, (lane.tag, entry, lane))  # charged since it was listed
            else:
                for ticket in lane.waiting.values():
                    return ticket
        return None

    def head_within(self, room: int) -> Ticket | None:
        """The first of the next few lanes whose oldest ticket fits."""
        passed: list[tuple[float, int, TenantLane]] = []
        found: Ticket | None = None
        while len(passed) < LOOK_AHEAD and (ticket := self.head()) is not None:
            if ticket.width <= room:
                found = ticket
                break
            passed.append(heappop(self._heap))
        for item in passed:
            heappush(self._heap, item)
        return found

    def activated(self, lane: TenantLane) -> None:
        """It counts among those that share the rate."""
        self._active += 1
        self._active_weight += lane.weight

    def joined(self, lane: TenantLane) -> None:
        """Start no earlier than the present; a lane in debt starts later."""
        lane.lift(self.join_at(lane))
        self._list(lane)

    def join_at(self, lane: TenantLane) -> float:
        """Where a lane without debt joins.

        Virtual time alone would not do: it is where the latest newcomer stands, so that an endless stream of
        new tenants would join before an old one for ever. The work clock moves on whoever comes.
        """
        by_clock = self._clock - self.sleeper_credit / lane.weight
        return by_clock if by_clock > self.v else self.v

    def resumed(self, lane: TenantLane) -> None:
        """Go on where it was, but not too far behind."""
        lane.lift(self.v - CATCH_UP * lane.serving / lane.weight)
        self._list(lane)

    def put_back(self, lanes: Sequence[TenantLane]) -> None:
        """Go on where they were beside each other, all lifted by the same, so that the first of them stands
        where a newcomer would join. Each by itself would be lifted less the more it has in service, and who
        was served first would be served first for ever."""
        behind = self.v - max(lane.tag for lane in lanes)
        for lane in lanes:
            if behind > 0:
                lane.lift(lane.tag + behind)
            self._list(lane)

    def left(self, lane: TenantLane) -> None:
        """Off the list; its entry dies."""
        lane.entry = 0

    def ahead(self, ticket: Ticket) -> float:
        """All that waits; or its own lane's work and debt at the lane's part of the rate, if that is less."""
        lane = ticket.lane
        own: float = lane.work - ticket.work
        if lane.tag > self.v:
            own += (lane.tag - self.v) * lane.weight
        all_that_waits, by_own_part = self.work - ticket.work, own / self.part(lane)
        return by_own_part if by_own_part < all_that_waits else all_that_waits

    def part(self, lane: TenantLane) -> float:
        """Its weight among those that are active."""
        return lane.weight / max(self._active_weight, lane.weight)

    # -- accounts

    def started(self, ticket: Ticket) -> None:
        """Charge the estimate. Virtual time moves to the lane's tag."""
        lane = ticket.lane
        if lane.tag > self.v:
            self.v = lane.tag
        if self._clock < self.v:
            self._clock = self.v
        ticket.epoch = lane.epoch
        lane.tag += ticket.work / lane.weight
        if lane.waiting:
            self._list(lane)
        else:
            lane.entry = 0
        if self._idle and self._idle[0][0] <= self.v:
            self._forget_passed()

    def charge(self, ticket: Ticket, work: int) -> None:
        """Charge the overrun at once, or refund what was not used; a lane that moved ahead is listed anew."""
        lane = ticket.lane
        before = lane.tag
        lane.charge(work, ticket.epoch, self.v)
        if lane.entry and lane.tag < before:
            self._list(lane)

    def finished(self, ticket: Ticket, work: int) -> None:
        """The clock moves on by real work."""
        # The sum cannot be below one of its terms; rounding could make it so with weights far apart.
        lane, weight = ticket.lane, self._active_weight
        self._clock += work / (weight if weight > lane.weight else lane.weight)
        if not lane.running and not lane.waiting:
            self._deactivate(lane)

    def remove(self, ticket: Ticket) -> None:
        """Leave unserved; what never ran is never charged."""
        lane = ticket.lane
        if not lane.running and len(lane.waiting) == 1:
            self._deactivate(lane)
        super().remove(ticket)

    def _deactivate(self, lane: TenantLane) -> None:
        self._active -= 1
        # Weights are floats: start from exactly zero again whenever nobody is active.
        self._active_weight = self._active_weight - lane.weight if self._active else 0.0

    def _list(self, lane: TenantLane) -> None:
        self._seq += 1
        lane.entry = self._seq
        heappush(self._heap, (lane.tag, self._seq, lane))

    # -- forgetting

    def may_forget(self, lane: TenantLane) -> bool:
        """A lane without debt would join where a new one does; one in debt is kept until time passes it."""
        if lane.tag <= self.v:
            return True
        if not lane.retiring:
            lane.retiring = True
            self._seq += 1
            heappush(self._idle, (lane.tag, self._seq, lane))
        return False

    def make_room(self) -> bool:
        """Forget the idle lane with the least debt."""
        while self._idle:
            _, _, lane = heappop(self._idle)
            lane.retiring = False
            if lane.idle:
                del self.lanes[lane.tenant]
                return True
        return False

    def _forget_passed(self) -> None:
        while self._idle and self._idle[0][0] <= self.v:
            _, _, lane = heappop(self._idle)
            lane.retiring = False
            if lane.idle:
                self._perhaps_forget(lane)
