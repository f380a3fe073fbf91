"""How long will it take: rates and waits, worked out from what calls were like lately.

Estimates for two decisions only: whether a newcomer can make its deadline, and what a refused caller is told.
"""

from __future__ import annotations

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.routes import Routes
from agentload.scheduler.tenants import TenantLane, Ticket

_GUESS_NS = 1_000_000_000
"""Time in service while nothing has been served yet; only promises rest on it, never a refusal."""


class Forecast:
    """Rates of classes and lanes. Times in nanoseconds."""

    def __init__(self, classes: list[ServiceClass], routes: Routes) -> None:
        self._classes = classes
        self._of_pool = {cls.name: [c for c in classes if c.pool is cls.pool] for cls in classes}
        self._one_pool = all(cls.pool is classes[0].pool for cls in classes)
        self._routes = routes
        self._limits = routes.default.limits

    def wait_ns(self, now_ns: int, ticket: Ticket) -> int:
        """How long a ticket that has just joined will wait; 0 when nothing is known that says otherwise."""
        cls = ticket.service_class
        calls_ahead = cls.queue.ahead(ticket) / (cls.work.mean or ticket.work)
        service_ns = cls.service.moving.mean
        part = _part(cls, self._of_pool[cls.name])
        wait_ns = (calls_ahead + 1) * _pool_interval_ns(cls, service_ns, part)
        if ticket.lane.blocked:
            # A tenant at its cap is served so many at a time, whatever else is free.
            wait_ns = max(wait_ns, len(ticket.lane.waiting) / cls.pool.cap(ticket.lane.tenant) * service_ns)
        if self._routes.several:
            return max(round(wait_ns), ticket.route.wait_ns(now_ns, 0))
        away_ns = self._limits.back_ns(service_ns or _GUESS_NS) - now_ns
        at_pool_ns = round(wait_ns + away_ns if away_ns > 0 else wait_ns)
        at_provider_ns = self._provider_wait_ns(now_ns, ticket, calls_ahead, part)
        return at_provider_ns if at_provider_ns > at_pool_ns else at_pool_ns

    def back_ns(self, now_ns: int, cls: ServiceClass) -> int:
        """From when the provider takes calls at the usual rate; now, unless it asked for a pause lately."""
        back_ns = self._limits.back_ns(cls.service.moving.mean or _GUESS_NS)
        return back_ns if back_ns > now_ns else now_ns

    def interval_ns(self, cls: ServiceClass) -> int:
        """Time between two starts of the class's calls while it has work waiting."""
        service_ns = cls.service.moving.mean or _GUESS_NS
        part = _part(cls, self._of_pool[cls.name])
        at_pool = _pool_interval_ns(cls, service_ns, part)
        at_provider = self._limits.interval_ns(cls.tokens.mean) / self._provider_part(cls, part)
        return max(1, round(max(at_pool, at_provider)))

    def lane_interval_ns(self, cls: ServiceClass, lane: TenantLane) -> int:
        """Time between two starts of the tenant's calls while it has work waiting."""
        by_weight = self.interval_ns(cls) / cls.queue.part(lane)
        service_ns = cls.service.moving.mean or _GUESS_NS
        by_cap = service_ns / cls.pool.cap(lane.tenant) if cls.capped else 0.0
        return max(1, round(max(by_weight, by_cap)))

    def _provider_wait_ns(self, now_ns: int, ticket: Ticket, calls_ahead: float, part: float) -> int:
        if not self._limits.limited:
            return 0
        cls = ticket.service_class
        calls = calls_ahead / (part if self._one_pool else self._provider_part(cls, part))
        tokens = calls * cls.tokens.mean + ticket.provider_tokens
        wait_ns = self._limits.drained_ns(calls + 1, tokens) - now_ns
        return wait_ns if wait_ns > 0 else 0

    def _provider_part(self, cls: ServiceClass, part_of_pool: float) -> float:
        """At the provider the classes of all pools meet."""
        return part_of_pool if self._one_pool else _part(cls, self._classes)


def _pool_interval_ns(cls: ServiceClass, service_ns: float, part: float) -> float:
    """By slots or by units, whichever is scarcer, at the class's part of the pool."""
    if cls.share.limit is not None:
        part = min(part, cls.share.limit)
    by_slots, by_units = 1 / cls.pool.slots, cls.work.mean / cls.pool.capacity
    return service_ns / part * (by_units if by_units > by_slots else by_slots)


def _part(cls: ServiceClass, rivals: list[ServiceClass]) -> float:
    """The class's weight among those that have work, itself included: idle ones lend theirs."""
    total = 0.0
    for rival in rivals:
        if rival is cls or rival.share.slots_used or rival.queue.waiting:
            total += rival.share.weight
    return cls.share.weight / total
