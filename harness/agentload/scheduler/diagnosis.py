"""Why did it wait? Decided from what the scheduler knows when it dispatches or refuses.

Only slow and refused requests are explained, and what is looked at (a bounded part of the queue and of the
calls in service) is looked at ten times a second at most, so that a flood of refusals costs next to nothing
and everything else costs nothing at all.

The causes are tried in a fixed order, and the first that holds is named: a limit of the tenant's own, then a
retry storm (whatever began it, the returning calls are what keeps it going), then who has more than its share
(a tenant, then a class), then what is slow (the provider's limit, then its model), then plain capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from math import sqrt

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.events import Dispatched, Event, Expired, Refused
from agentload.scheduler.pace import Pace
from agentload.scheduler.reasons import Reason
from agentload.scheduler.tenants import Ticket
from agentload.scheduler.wait_cause import WaitCause
from agentload.scheduler.work import Request, provider_tokens

LOOK_NS = 100_000_000
"""A look at the queue serves for so long."""
MOST = 512
"""Tickets looked at, of each class and kind."""
STORM = 0.5
"""Share of what waits that has been here before, from which on it is a storm."""
OVER = 1.5
"""A tenant is over its share from so many times what its weight makes of all that waits and runs..."""
SURPLUS = 3.0
"""... if that is more than so many square roots of it too many: equal tenants differ by chance."""
SLOW = 1.5
"""The model is slow from so many times the normal time on."""
LEAST = 4
"""Fewer waiting requests make no storm."""
MODELS = 64
"""Models that a pace is kept for; the rest have one together."""

_OWN_LIMITS = frozenset({Reason.TENANT_OVER_LIMIT, Reason.BUDGET_SPENT, Reason.BUDGET_RESERVED})
_NOT_LOAD = frozenset(
    {
        Reason.SHUTTING_DOWN,
        Reason.TOO_MANY_TENANTS,
        Reason.TOO_EARLY,
        Reason.EXPIRED,  # on arrival
        Reason.LEASE_EXPIRED,
    }
)
"""Refusals that have nothing to do with how much work there is."""


class _Look:
    """What one class had waiting and in service."""

    __slots__ = ("at_ns", "counts", "mean_load", "retries", "waiting", "weights")

    def __init__(self, at_ns: int, waiting: Iterable[Ticket], running: Iterable[Ticket]) -> None:
        self.at_ns = at_ns
        self.waiting = self.retries = 0
        self.counts: dict[str, int] = {}
        """Requests waiting and running, by tenant."""
        self.weights: dict[str, float] = {}
        for ticket in waiting:
            self.waiting += 1
            self.retries += ticket.request.attempt > 0
            self._add(ticket)
        for ticket in running:
            self._add(ticket)
        total = sum(self.weights.values())
        self.mean_load = sum(self.counts.values()) / total if total else 0.0

    def _add(self, ticket: Ticket) -> None:
        tenant = ticket.lane.tenant
        self.weights[tenant] = ticket.lane.weight
        self.counts[tenant] = self.counts.get(tenant, 0) + 1

    @property
    def storm(self) -> bool:
        return self.retries >= max(LEAST, STORM * self.waiting)

    def over_share(self, tenant: str) -> bool:
        fair = self.weights.get(tenant, 0.0) * self.mean_load
        return self.counts.get(tenant, 0) > max(OVER * fair, fair + SURPLUS * sqrt(fair))


class Diagnosis:
    """Names the cause of a wait."""

    def __init__(self, dispatcher: Dispatcher, tickets: Mapping[int, Ticket]) -> None:
        """`tickets`: all that waits or runs, by request id."""
        self._dispatcher = dispatcher
        self._tickets = tickets
        self._looks: dict[str, _Look] = {}
        self._paces: dict[str, Pace] = {}
        self._slow_at_ns: dict[str, int] = {}
        """By model: when it was last seen to be slow."""
        self._lent_at_ns: dict[str, int] = {}
        """By class: when its share was last seen to be lent out."""

    def served(self, now_ns: int, model: str, output_tokens: int, service_ns: int) -> None:
        """A call was answered whole: learn how long its model takes."""
        known = self._known(model)
        pace = self._paces.get(known)
        if pace is None:
            pace = self._paces[known] = Pace()
        pace.add(output_tokens, service_ns)
        if pace.ratio >= SLOW:
            self._slow_at_ns[known] = now_ns

    def slowness(self) -> dict[str, float]:
        """By model: time in service of the last calls ÷ what calls of their size normally take."""
        return {model or "other": pace.ratio for model, pace in self._paces.items()}

    def cause(self, now_ns: int, event: Event) -> WaitCause | None:
        """Why this request waited, or was refused; None when that had nothing to do with load."""
        request = event.request
        cls = self._dispatcher.classes.get(request.service_class)
        if cls is None or not _is_of_load(event):
            return None
        if isinstance(event, Refused | Expired) and event.reason in _OWN_LIMITS:
            return WaitCause.TENANT_OVER_QUOTA
        if isinstance(event, Refused) and _is_hopeless_alone(event):
            return WaitCause.MODEL_SLOW if self._slow(now_ns, cls, event) else None
        look = self._look(now_ns, cls)
        if look.storm:
            return WaitCause.RETRY_STORM
        if self._over_quota(cls, request, look):
            return WaitCause.TENANT_OVER_QUOTA
        if self._lent_out(now_ns, cls, event):
            return WaitCause.CLASS_BORROWED
        if self._held_by_provider(now_ns, cls, event):
            return WaitCause.PROVIDER_LIMIT
        return WaitCause.MODEL_SLOW if self._slow(now_ns, cls, event) else WaitCause.CAPACITY

    def _look(self, now_ns: int, cls: ServiceClass) -> _Look:
        look = self._looks.get(cls.name)
        if look is None or now_ns - look.at_ns >= LOOK_NS:
            waiting = islice(cls.queue.waiting.values(), MOST)
            look = self._looks[cls.name] = _Look(now_ns, waiting, self._running(cls))
        return look

    def _running(self, cls: ServiceClass) -> list[Ticket]:
        """The calls of the class in service, as far as they are looked at."""
        held = (self._tickets[request_id] for request_id in islice(cls.pool.leases, MOST))
        return [ticket for ticket in held if ticket.service_class is cls]

    def _over_quota(self, cls: ServiceClass, request: Request, look: _Look) -> bool:
        at_cap = cls.capped and cls.pool.in_flight(request.tenant) >= cls.pool.cap(request.tenant)
        return at_cap or look.over_share(request.tenant)

    def _lent_out(self, now_ns: int, cls: ServiceClass, event: Event) -> bool:
        """Whether it is below its share while another class of the pool is over its own, or was for half of
        the wait."""
        own, started = cls.share, isinstance(event, Dispatched)
        has_it = own.slots_used - started >= own.nominal_slots or own.units_used >= own.nominal_units
        others = (share for share in cls.pool.shares.values() if share is not own)
        if not has_it and any(map(cls.pool.borrowing, others)):
            self._lent_at_ns[cls.name] = now_ns
            return True
        return self._lent_at_ns.get(cls.name, -1) > now_ns - _waited_ns(event) // 2

    def _held_by_provider(self, now_ns: int, cls: ServiceClass, event: Event) -> bool:
        """A pause took half of its wait, or a slot is free and the bucket would not let another call go."""
        limits = self._dispatcher.limits
        if limits.paused_until_ns > now_ns - _waited_ns(event) // 2:
            return True
        free = cls.pool.slots_free > 0
        return free and limits.ready_ns(provider_tokens(event.request)) > now_ns

    def _slow(self, now_ns: int, cls: ServiceClass, event: Event) -> bool:
        """Calls took long for half of its wait, or half of those in service have been there for too long."""
        model = self._known(event.request.model)
        pace = self._paces.get(model)
        if pace is None:
            return False
        if pace.ratio >= SLOW or self._slow_at_ns.get(model, -1) > now_ns - _waited_ns(event) // 2:
            return True
        running = self._running(cls)
        late = sum(self._late(now_ns, ticket) for ticket in running)
        return bool(running) and late * 2 >= len(running)

    def _late(self, now_ns: int, ticket: Ticket) -> bool:
        pace = self._paces.get(self._known(ticket.request.model))
        if pace is None or not pace.known:
            return False
        normal_ns = pace.expected_ns(max(ticket.output_tokens, ticket.estimated_output_tokens))
        return now_ns - ticket.started_ns > SLOW * normal_ns

    def _known(self, model: str) -> str:
        return model if model in self._paces or len(self._paces) < MODELS else ""


def _waited_ns(event: Event) -> int:
    """What is known of how long it waited."""
    return event.waited_ns if isinstance(event, Dispatched) else 0


def _is_hopeless_alone(event: Refused) -> bool:
    """Whether its deadline is too short for the call itself, however little waits."""
    return event.reason is Reason.DEADLINE_UNMEETABLE and not event.predicted_wait_ns


def _is_of_load(event: Event) -> bool:
    if isinstance(event, Dispatched):
        return True
    reason = event.reason
    if isinstance(event, Expired):
        return reason is not Reason.LEASE_EXPIRED
    if reason in _OWN_LIMITS:
        return True
    return reason not in _NOT_LOAD and (reason.invites_retry or reason is Reason.DEADLINE_UNMEETABLE)
