"""A service class at work: its queue, its bounds, its part of the pool, and what its calls were like."""

from __future__ import annotations

from collections.abc import Callable

from agentload.scheduler.config import ClassConfig, TenantConfig, WhenFull
from agentload.scheduler.estimate import MovingMean, ServiceTime
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.pool import Pool
from agentload.scheduler.reasons import Reason
from agentload.scheduler.retry_after import VirtualQueue
from agentload.scheduler.tenants import WAITING, TenantLane, Ticket
from agentload.scheduler.work import UNIT

_RECENT = 100
"""Calls over which a class's means are taken."""


class ServiceClass:
    """One class. Bounds are per class and per tenant: requests, micro-units and bytes."""

    def __init__(
        self, name: str, config: ClassConfig, pool: Pool, queue: FairQueue, widest_units: float
    ) -> None:
        self.name = name
        self.pool = pool
        self.share = pool.shares[name]
        self.queue = queue
        self.capped = queue.tenant_cap and pool.caps_tenants
        """Whether a tenant can be at its cap, and has to be blocked then."""
        self.defers = config.response_when_full is WhenFull.DEFER
        """Whether what finds it full may be put off: a durable job is, a chat call is refused with 503."""
        self.promises = VirtualQueue()
        """Places in the class's queue promised to refused callers."""
        self.max_wait_ns = round(config.max_wait_s * 1e9)
        self.max_requests = config.max_queue
        self.max_units = None if config.max_queue_units is None else round(config.max_queue_units * UNIT)
        self.max_bytes = config.max_queue_bytes
        self.tenant_max_requests = (
            max(1, config.max_queue // (2 * pool.lanes_each))
            if config.tenant_max_queue is None
            else config.tenant_max_queue
        )
        self.widest = min(round(widest_units * UNIT), pool.widest(self.share))
        """Micro-units of the widest job that it may ever have."""
        self.nothing_within = -1
        """The room for which nothing that fits was found, while that holds; -1: look again."""
        self._again: list[Ticket] = []
        """Tickets that joined the queue a second time, older than others before them. Some have left it."""
        self.service = ServiceTime()
        self.work = MovingMean(_RECENT)
        """Micro-units of a call, as settled."""
        self.tokens = MovingMean(_RECENT)
        """Tokens that the provider charged for a call."""

    def lane(self, tenant: str, contract: TenantConfig | None) -> TenantLane | None:
        """Where the tenant's next request waits; None when there are too many tenants and none is idle."""
        weight = 1.0 if contract is None else contract.weight
        shards = self.pool.shards
        if shards is None or (contract is not None and (weight != 1.0 or contract.slots is not None)):
            return self.queue.lane(tenant, weight)
        return self.queue.lane(shards.choose(tenant, self.queue.lanes), 1.0)

    def served(self, now_ns: int, ticket: Ticket, work: int) -> None:
        """Learn from a call that was answered whole."""
        self.service.add(now_ns, now_ns - ticket.started_ns)
        self.work.add(work)
        self.tokens.add(ticket.provider_tokens)

    # -- age

    def joined_again(self, ticket: Ticket) -> None:
        """The ticket, whose first call failed, waits for another one."""
        self._again = [*(one for one in self._again if one.state is WAITING), ticket]

    def oldest_ns(self) -> int | None:
        """When the oldest of those that wait came; None when nothing waits."""
        first = next(iter(self.queue.waiting.values()), None)
        if first is None:
            return None
        again = [one.queued_ns for one in self._again if one.state is WAITING]
        return min(first.queued_ns, *again) if again else first.queued_ns

    # -- bounds

    def tenant_exceeds(self, lane: TenantLane) -> bool:
        """Whether the tenant has more waiting than it may: its number of requests, or half of the class's
        units or bytes, though one request may always wait."""
        if not self.queue.tenant_bound:
            return False
        if len(lane.waiting) > self.tenant_max_requests:
            return True
        if len(lane.waiting) == 1:
            return False
        too_much = self.max_units is not None and lane.work * 2 > self.max_units
        return too_much or lane.bytes * 2 > self.max_bytes

    @property
    def full(self) -> bool:
        """Whether one more request would exceed the number that may wait."""
        return len(self.queue.waiting) >= self.max_requests

    def exceeded(self) -> Reason | None:
        """The bound of the class that what waits now exceeds, or None."""
        if len(self.queue.waiting) > self.max_requests:
            return Reason.CLASS_QUEUE_FULL
        if self.max_units is not None and self.queue.work > self.max_units:
            return Reason.QUEUE_UNITS_FULL
        if self.queue.bytes > self.max_bytes:
            return Reason.QUEUE_BYTES_FULL
        return None

    def victims(self, newcomer: Ticket, exceeded: Reason) -> list[Ticket]:
        """Who makes room for the newcomer: the newest of the tenant most over its share.

        Empty when that is the newcomer's own tenant, when room cannot be made, or when the policy drops
        newcomers; the newcomer loses then.
        """
        if not self.queue.evicts:
            return []
        if exceeded is Reason.QUEUE_UNITS_FULL:
            return self._largest(newcomer, self.queue.work - (self.max_units or 0), _work_of)
        if exceeded is Reason.QUEUE_BYTES_FULL:
            return self._largest(newcomer, self.queue.bytes - self.max_bytes, _bytes_of)
        lane = self.queue.heaviest()
        # Only a tenant with strictly more: among equals the newcomer would take a place to no purpose.
        return [] if lane is None or lane.load <= newcomer.lane.load else [lane.newest]

    def _largest(
        self, newcomer: Ticket, excess: int, size: Callable[[Ticket | TenantLane], int]
    ) -> list[Ticket]:
        """As many of the newest of the tenant with most (by size per weight) as free `excess`.

        Looks at all that waits: these bounds are the rare ones.
        """
        lanes = {id(ticket.lane): ticket.lane for ticket in self.queue.waiting.values()}
        lane = max(lanes.values(), key=lambda lane: size(lane) / lane.weight)
        if size(lane) / lane.weight <= size(newcomer.lane) / newcomer.lane.weight:
            return []
        chosen: list[Ticket] = []
        for ticket in reversed(lane.waiting.values()):
            if excess <= 0:
                break
            chosen.append(ticket)
            excess -= size(ticket)
        return chosen if excess <= 0 else []


def _work_of(what: Ticket | TenantLane) -> int:
    return what.work


def _bytes_of(what: Ticket | TenantLane) -> int:
    return what.bytes
