"""Which waiting ticket goes next, if any may: class by class, with all of pool, provider and tenant caps.

Every constraint is looked at before anything is taken; then everything is taken, in one step.

Among classes: those within their nominal share come before those that would borrow; among equals the one that
has had least work for its share (start-time fair queueing again, over classes). What is in service decides
who may borrow slots; the tags see to it that a class also gets its share of the provider's tokens per minute,
when those are what is scarce and hardly anything is in service.

A job that does not fit the pool is passed by others for `gather_after_s`; from then on nothing of its pool
starts that would delay it (what a class takes within its floor does not) until enough has ended to let it in.
So it waits no longer than `gather_after_s` plus the longest call then in service, and the others no longer
than that call. At the provider's bucket nobody passes anybody: small calls would always empty it just before
a large one could go. It fills within `bucket_s`, so nobody waits longer than that behind one call.
"""

from __future__ import annotations

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.pool import Pool
from agentload.scheduler.routes import Routes
from agentload.scheduler.tenants import GONE, RUNNING, Ticket


class Dispatcher:
    """Pools, classes and the provider's limits, and the order among them."""

    def __init__(self, config: GatewayConfig, policy: type[FairQueue]) -> None:
        self.routes = Routes(config.upstream, sum(pool.slots for pool in config.pools.values()))
        self.limits = self.routes.default.limits
        """Of all models that have none of their own."""
        self.pools: list[Pool] = []
        self._order: list[ServiceClass] = []
        self._classes_of: dict[str, list[ServiceClass]] = {}
        self._pools_with_classes: list[tuple[Pool, list[ServiceClass]]] = []
        self._gathering: dict[str, Ticket] = {}
        """By pool: the wide job that everybody else waits for."""
        self._strict = policy.strict_classes
        self._v = 0.0
        """Virtual time among classes: the largest tag that has been picked."""
        widest = config.estimation.max_reservation_units
        own_caps = {name: one.slots for name, one in config.tenants.items() if one.slots is not None}
        for name, pool_config in config.pools.items():
            pool = Pool(name, pool_config, own_caps)
            classes = [
                ServiceClass(class_name, class_config, pool, policy(config.max_tenants), widest)
                for class_name, class_config in pool_config.classes.items()
            ]
            self.pools.append(pool)
            self._order += classes
            self._classes_of[name] = classes
            self._pools_with_classes.append((pool, classes))
        self.classes = {cls.name: cls for cls in self._order}

    # -- waiting

    def enqueue(self, ticket: Ticket) -> None:
        """The ticket joins its class's queue."""
        cls, tenant = ticket.service_class, ticket.lane.tenant
        if cls.capped and cls.pool.in_flight(tenant) >= cls.pool.cap(tenant):
            cls.queue.block(tenant)
        cls.queue.push(ticket)
        if self.routes.several:
            self.routes.joined(ticket)
        if ticket.width <= cls.nothing_within:
            cls.nothing_within = -1

    def withdraw(self, ticket: Ticket) -> None:
        """The ticket leaves its queue unserved."""
        ticket.state = GONE
        self._stop_gathering(ticket)
        ticket.service_class.queue.remove(ticket)
        if self.routes.several:
            self.routes.left(ticket)
        ticket.service_class.nothing_within = -1

    # -- order

    def next(self, now_ns: int) -> Ticket | None:
        """The ticket whose turn it is among those that the pools have room for. Takes nothing."""
        if self._strict:
            return self._first_in_order(now_ns)
        best: Ticket | None = None
        best_key = (False, 0.0)
        for pool, classes in self._pools_with_classes:
            if not pool.slots_free:
                continue
            for cls in classes:
                ticket = self._candidate(now_ns, cls)
                if ticket is not None:
                    share = cls.share
                    key = (pool.over_nominal(share), share.tag)
                    if best is None or key < best_key:
                        best, best_key = ticket, key
        return best

    def _first_in_order(self, now_ns: int) -> Ticket | None:
        """Strict priority: of the first class, as they are configured, that has anything to start."""
        for cls in self._order:
            ticket = self._candidate(now_ns, cls) if cls.pool.slots_free else None
            if ticket is not None:
                return ticket
        return None

    def _candidate(self, now_ns: int, cls: ServiceClass) -> Ticket | None:
        share, pool = cls.share, cls.pool
        head = cls.queue.head() if cls.queue.waiting else None
        if head is None:
            share.contending = False
            return None
        if not share.contending:
            share.lift(self._class_v())
            share.contending = True
        room = pool.room(share)
        if room < 0:
            return None
        if self._gathering:
            gathering = self._gathering_in(pool)
            if gathering is not None:
                return self._beside(gathering, cls, head, room)
        if head.width <= room:
            return head
        return self._behind(now_ns, cls, head, room)

    def _behind(self, now_ns: int, cls: ServiceClass, head: Ticket, room: int) -> Ticket | None:
        """Somebody behind a head that does not fit, unless the head has been passed for long enough."""
        if head.stuck_ns is None:
            head.stuck_ns = now_ns
        if now_ns - head.stuck_ns < cls.pool.gather_after_ns:
            return self._first_within(cls, room)
        self._gathering[cls.pool.name] = head
        return None

    def _first_within(self, cls: ServiceClass, room: int) -> Ticket | None:
        if room <= cls.nothing_within:
            return None
        ticket = cls.queue.head_within(room)
        if ticket is None:
            cls.nothing_within = room
        return ticket

    def _beside(self, gathering: Ticket, cls: ServiceClass, head: Ticket, room: int) -> Ticket | None:
        """The gathering job itself once it fits; of other classes, what does not delay it."""
        if gathering.service_class is cls:
            return gathering if gathering.width <= room else None
        if head.width > room:
            return None
        spare = cls.pool.free_for(gathering.service_class.share) - gathering.width
        return head if head.width <= max(spare, cls.share.unmet_units) else None

    def _gathering_in(self, pool: Pool) -> Ticket | None:
        ticket = self._gathering.get(pool.name)
        if ticket is not None and ticket.lane.blocked:
            # Its tenant reached its cap through another class: nobody should wait for it meanwhile.
            self._stop_gathering(ticket)
            return None
        return ticket

    def _stop_gathering(self, ticket: Ticket) -> None:
        if self._gathering and self._gathering.get(ticket.service_class.pool.name) is ticket:
            del self._gathering[ticket.service_class.pool.name]

    def _class_v(self) -> float:
        """Where a class joins: beside the one that is furthest behind, or where the last one was picked."""
        return min((cls.share.tag for cls in self._order if cls.share.contending), default=self._v)

    # -- running

    def start(self, now_ns: int, ticket: Ticket) -> None:
        """Take everything for the ticket: its turn, a slot, its units, and the provider's tokens."""
        cls, share, pool = ticket.service_class, ticket.service_class.share, ticket.service_class.pool
        tenant = ticket.lane.tenant
        if self._gathering:
            self._stop_gathering(ticket)
        cls.queue.start(ticket)
        if self.routes.several:
            self.routes.left(ticket)
        cls.nothing_within = -1
        if share.tag > self._v:
            self._v = share.tag
        ticket.class_epoch = share.epoch
        share.tag += ticket.work / share.weight
        ticket.limits.take(now_ns, ticket.provider_tokens)
        ticket.limits.window.in_flight += 1
        ticket.state = RUNNING
        ticket.started_ns = now_ns
        in_flight = pool.take(share, tenant, ticket.width)
        if cls.capped and in_flight >= pool.cap(tenant):
            for other in self._classes_of[pool.name]:
                other.queue.block(tenant)

    def charge(self, ticket: Ticket, work: int) -> None:
        """The running ticket has cost `work` micro-units by now: charge what exceeds the charge so far."""
        extra = work - ticket.charged
        if extra > 0:
            ticket.service_class.queue.charge(ticket, extra)
            ticket.service_class.share.charge(extra, ticket.class_epoch, 0.0)
            ticket.charged = work

    def finish(self, ticket: Ticket, work: int) -> None:
        """The running ticket ended and cost `work` micro-units: settle, and give back slot and units."""
        cls, share, pool = ticket.service_class, ticket.service_class.share, ticket.service_class.pool
        tenant = ticket.lane.tenant
        ticket.state = GONE
        ticket.limits.window.in_flight -= 1
        # Where virtual time stands matters only to a refund of what was charged before a lift.
        now_v = self._class_v() if ticket.class_epoch != share.epoch else 0.0
        share.charge(work - ticket.charged, ticket.class_epoch, now_v)
        cls.queue.settle(ticket, work)
        # Just below the cap: a tenant's lanes are blocked while it is at its cap, and only then.
        in_flight = pool.release(share, tenant, ticket.width)
        if cls.capped and in_flight == pool.cap(tenant) - 1:
            for other in self._classes_of[pool.name]:
                other.queue.unblock(tenant)
                other.nothing_within = -1
        cls.queue.finish(ticket, work)
