"""Which tenant of a class goes next: the contract of a policy, and the bookkeeping that all policies share.

A policy holds what waits in ONE class. It decides the order among tenants and nothing else: whether there is
capacity, and whether a request may wait at all, is admission's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

from agentload.scheduler.tenants import HeaviestLane, TenantLane, Ticket


class FairQueue(ABC):
    """Waiting tickets by tenant. Policies differ in `head`, `head_within` and in what they charge."""

    tenant_bound: ClassVar[bool]
    """Safeguard: admission bounds what one tenant may have waiting."""
    tenant_cap: ClassVar[bool]
    """Safeguard: admission bounds what one tenant may have in flight."""
    evicts: ClassVar[bool]
    """Safeguard: a full queue drops the newest of the tenant most over its share, not the newcomer."""
    admits: ClassVar[bool] = True
    """Safeguard: there are bounds, slots and limits. Without it everything is dispatched at once."""
    strict_classes: ClassVar[bool] = False
    """True where a class is served only while those that are configured before it have nothing to start.
    Safeguard where it is False: the dispatcher gives each class its share."""

    def __init__(self, max_tenants: int) -> None:
        self.max_tenants = max_tenants
        self.lanes: dict[str, TenantLane] = {}
        self.waiting: OrderedDict[int, Ticket] = OrderedDict()
        """All that waits, oldest first."""
        self.work = 0
        """Micro-units waiting."""
        self.bytes = 0
        """Bytes waiting."""
        self._heaviest = HeaviestLane()

    # -- what a policy decides

    @abstractmethod
    def head(self) -> Ticket | None:
        """The ticket whose turn it is; None when nothing waits, or all that waits is blocked."""

    @abstractmethod
    def head_within(self, room: int) -> Ticket | None:
        """The first in the policy's order that needs at most `room` micro-units, as far as it looks ahead."""

    def charge(self, ticket: Ticket, work: int) -> None:  # noqa: B027 - a policy without accounts does nothing
        """Charge a running ticket's tenant more work, or refund some (negative)."""

    def ahead(self, ticket: Ticket) -> float:
        """Micro-units that will start before a ticket that has just joined."""
        return self.work - ticket.work

    def part(self, lane: TenantLane) -> float:  # noqa: ARG002 - for policies that know weights
        """The lane's part of what the class is served, 0..1, while it has work waiting."""
        return 1.0

    def activated(self, lane: TenantLane) -> None:  # noqa: B027
        """The lane was idle, and its first ticket is about to come."""

    def joined(self, lane: TenantLane) -> None:  # noqa: B027
        """The lane has something to pick: its first ticket came."""

    def resumed(self, lane: TenantLane) -> None:
        """The lane is no longer blocked, and has something to pick."""
        self.joined(lane)

    def put_back(self, lanes: Sequence[TenantLane]) -> None:
        """Lanes that were set aside for one look, all for the same model, in their order: they lose nothing
        of what they are due beside each other."""
        for lane in lanes:
            self.resumed(lane)

    def left(self, lane: TenantLane) -> None:  # noqa: B027
        """The lane has nothing to pick any more."""

    def started(self, ticket: Ticket) -> None:  # noqa: B027
        """The ticket left to be served: charge the estimate."""

    def finished(self, ticket: Ticket, work: int) -> None:  # noqa: B027
        """A running ticket ended after `work` micro-units, all of them charged."""

    def may_forget(self, lane: TenantLane) -> bool:  # noqa: ARG002 - for policies with accounts
        """Whether an idle lane can be dropped without any effect on the order."""
        return True

    def make_room(self) -> bool:
        """Forget the idle lane that matters least, to make room for another; False when none is idle."""
        return False

    # -- what admission calls

    def lane(self, tenant: str, weight: float) -> TenantLane | None:
        """The tenant's lane, made when it is new; None when there are too many tenants and none is idle."""
        lane = self.lanes.get(tenant)
        if lane is None:
            if len(self.lanes) >= self.max_tenants and not self.make_room():
                return None
            lane = self.lanes[tenant] = TenantLane(tenant, weight)
        return lane

    def push(self, ticket: Ticket) -> None:
        """Wait at the end of the tenant's lane."""
        lane = ticket.lane
        first = not lane.waiting
        if first and not lane.running:
            self.activated(lane)
        lane.waiting[ticket.request.id] = self.waiting[ticket.request.id] = ticket
        lane.work += ticket.work
        lane.bytes += ticket.bytes
        self.work += ticket.work
        self.bytes += ticket.bytes
        if self._heaviest.kept_for:
            self._heaviest.grew(lane)
        if first and not lane.blocked:
            self.joined(lane)

    def remove(self, ticket: Ticket) -> None:
        """Leave without being served."""
        self._take_out(ticket)
        lane = ticket.lane
        if not lane.waiting:
            self.left(lane)
            if not lane.running:
                self._perhaps_forget(lane)

    def start(self, ticket: Ticket) -> None:
        """Leave to be served; the tenant is charged the estimate."""
        self._take_out(ticket)
        lane = ticket.lane
        lane.running += 1
        lane.serving += ticket.work
        ticket.charged = ticket.work
        self.started(ticket)

    def settle(self, ticket: Ticket, work: int) -> None:
        """A running ticket has cost `work` micro-units: charge or refund the difference."""
        if work != ticket.charged:
            self.charge(ticket, work - ticket.charged)

    def finish(self, ticket: Ticket, work: int) -> None:
        """A running ticket, already settled, is no longer running."""
        lane = ticket.lane
        lane.running -= 1
        lane.serving -= ticket.work
        self.finished(ticket, work)
        if not lane.running and not lane.waiting:
            self._perhaps_forget(lane)

    def block(self, tenant: str) -> None:
        """The tenant is at its cap: do not pick from it."""
        lane = self.lanes.get(tenant)
        if lane is not None and not lane.blocked:
            lane.blocked = True
            self.left(lane)

    def unblock(self, tenant: str) -> None:
        """The tenant is below its cap again."""
        lane = self.lanes.get(tenant)
        if lane is not None and lane.blocked:
            lane.blocked = False
            if lane.waiting:
                self.resumed(lane)

    def heaviest(self) -> TenantLane | None:
        """The lane with the most requests waiting per weight."""
        return self._heaviest.top(self.waiting.values())

    # -- bookkeeping

    def _take_out(self, ticket: Ticket) -> None:
        lane, request_id = ticket.lane, ticket.request.id
        del lane.waiting[request_id], self.waiting[request_id]
        lane.work -= ticket.work
        lane.bytes -= ticket.bytes
        self.work -= ticket.work
        self.bytes -= ticket.bytes

    def _perhaps_forget(self, lane: TenantLane) -> None:
        """The lane is idle."""
        if self.may_forget(lane):
            del self.lanes[lane.tenant]
