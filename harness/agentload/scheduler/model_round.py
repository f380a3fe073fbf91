"""One look at what may start, where models have limits of their own.

A model whose limits are used up must not hold up requests for others. Those that wait for it are passed over
for the rest of the look: in its tenant's line by a later request for another model, and a tenant that wants
nothing else by other tenants. For the same model nobody passes anybody, as everywhere: whoever is first in
order and has to wait closes it for the look.
"""

from __future__ import annotations

from agentload.scheduler.limits import ProviderLimits
from agentload.scheduler.tenants import Ticket


class ModelRound:
    """Asks for each ticket whose turn it is whether it, or another of its line, may go now."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._closed: list[ProviderLimits] = []
        """Limits that somebody earlier in order waits for."""
        self._aside: list[Ticket] = []
        """Tickets whose lines want nothing that is open."""
        self.wakeup_ns: int | None = None
        """When to look again, if nothing else happens."""

    def choose(self, ticket: Ticket) -> Ticket | None:
        """The ticket itself or a later one of its line, its limits set to those it goes by; else None, and
        its line is set aside. Raises StopIteration where the policy insists on that ticket."""
        if self._may_go(ticket):
            return ticket
        room = ticket.service_class.pool.room(ticket.service_class.share)
        for other in ticket.lane.waiting.values():
            if other is not ticket and other.width <= room and self._may_go(other):
                return other
        if ticket.lane.blocked or any(ticket is one for one in self._aside):
            raise StopIteration
        ticket.lane.blocked = True
        ticket.service_class.queue.left(ticket.lane)
        self._aside.append(ticket)
        return None

    def end(self) -> None:
        """Put back what was set aside, but for tenants that have come to their cap meanwhile."""
        together: dict[tuple[str, int], list[Ticket]] = {}
        for ticket in self._aside:
            cls, lane = ticket.service_class, ticket.lane
            cls.nothing_within = -1
            if cls.capped and cls.pool.in_flight(lane.tenant) >= cls.pool.cap(lane.tenant):
                continue
            lane.blocked = False
            if lane.waiting:
                together.setdefault((cls.name, id(ticket.route.limits)), []).append(ticket)
        for tickets in together.values():
            tickets[0].service_class.queue.put_back([ticket.lane for ticket in tickets])

    def _may_go(self, ticket: Ticket) -> bool:
        route, now_ns = ticket.route, self._now_ns
        ready_ns = self._ready_ns(route.limits, ticket.provider_tokens)
        if ready_ns is not None and ready_ns <= now_ns:
            ticket.limits, ticket.fallback_model = route.limits, None
            return True
        fallback = route.fallback
        if fallback is None:
            return False
        due_ns = ticket.queued_ns + fallback.after_ns
        soonest_ns = max(now_ns, route.limits.ready_ns(ticket.provider_tokens))
        if soonest_ns < due_ns:
            self._wake(due_ns)
            return False
        ready_ns = self._ready_ns(fallback.limits, ticket.provider_tokens)
        if ready_ns is None or ready_ns > now_ns:
            return False
        ticket.limits, ticket.fallback_model = fallback.limits, fallback.model
        return True

    def _ready_ns(self, limits: ProviderLimits, tokens: int) -> int | None:
        """When it may go, as far as time decides; None where it has to wait for something else. Closes the
        limits for this look when that is not now."""
        if any(limits is one for one in self._closed):
            return None
        ready_ns = limits.ready_ns(tokens)
        if ready_ns > self._now_ns:
            self._wake(ready_ns)
        elif not limits.window.full():
            return ready_ns
        self._closed.append(limits)
        return ready_ns if ready_ns > self._now_ns else None

    def _wake(self, at_ns: int) -> None:
        if self.wakeup_ns is None or at_ns < self.wakeup_ns:
            self.wakeup_ns = at_ns
