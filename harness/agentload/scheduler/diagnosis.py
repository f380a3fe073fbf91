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
"""A tenant is over its share from so many times the mean (requests per weight) on."""
SLOW = 1.5
"""The model is slow from so many times the normal time on."""
LEAST = 4
"""Fewer waiting requests make neither a storm nor a quota."""
MODELS = 64
"""Models that a pace is kept for; the rest have one together."""

_OWN_LIMITS = frozenset({"tenant_over_limit", "budget_spent"})
_NOT_LOAD = frozenset({Reason.SHUTTING_DOWN, Reason.TOO_MANY_TENANTS, Reason.EXPIRED, Reason.LEASE_EXPIRED})
"""Refusals that have nothing to do with how much work there is. (EXPIRED: its time was over on arrival.)"""


class _Look:
    """What one class had waiting and in service."""

    __slots__ = ("at_ns", "loads", "mean_load", "retries", "waiting")

    def __init__(self, at_ns: int, waiting: Iterable[Ticket], running: Iterable[Ticket]) -> None:
        self.at_ns = at_ns
        self.waiting = self.retries = 0
        self.loads: dict[str, float] = {}
        """Requests per weight, by tenant."""
        weights: dict[str, float] = {}
        count = 0
        for ticket in waiting:
            self.waiting += 1
            self.retries += ticket.request.attempt > 0
            count += self._add(ticket, weights)
        for ticket in running:
            count += self._add(ticket, weights)
        self.mean_load = count / sum(weights.values()) if weights else 0.0

    def _add(self, ticket: Ticket, weights: dict[str, float]) -> int:
        tenant, weight = ticket.lane.tenant, ticket.lane.weight
        weights[tenant] = weight
        self.loads[tenant] = self.loads.get(tenant, 0.0) + 1 / weight
        return 1

    @property
    def storm(self) -> bool:
        return self.retries >= max(LEAST, STORM * self.waiting)

    def over_share(self, tenant: str) -> bool:
        load = self.loads.get(tenant, 0.0)
        return self.waiting >= LEAST and load > OVER * self.mean_load


class Diagnosis:
    """Names the cause of a wait."""

    def __init__(self, dispatcher: Dispatcher, tickets: Mapping[int, Ticket]) -> None:
        """`tickets`: all that waits or runs, by request id."""
        self._dispatcher = dispatcher
        self._tickets = tickets
        self._looks: dict[str, _Look] = {}
        self._paces: dict[str, Pace] = {}

    def served(self, model: str, output_tokens: int, service_ns: int) -> None:
        """A call was answered whole: learn how long its model takes."""
        self._pace(model).add(output_tokens, service_ns)

    def slowness(self) -> dict[str, float]:
        """By model: time in service of the last calls ÷ what calls of their size normally take."""
        return {model or "other": pace.ratio for model, pace in self._paces.items()}

    def cause(self, now_ns: int, event: Event) -> WaitCause | None:
        """Why this request waited, or was refused; None when that had nothing to do with load."""
        request = event.request
        cls = self._dispatcher.classes.get(request.service_class)
        if cls is None or not _is_of_load(event):
            return None
        if isinstance(event, Refused | Expired) and event.reason.value in _OWN_LIMITS:
            return WaitCause.TENANT_OVER_QUOTA
        look = self._look(now_ns, cls)
        if look.storm:
            return WaitCause.RETRY_STORM
        if self._over_quota(cls, request, look):
            return WaitCause.TENANT_OVER_QUOTA
        if self._lent_out(cls, started=isinstance(event, Dispatched)):
            return WaitCause.CLASS_BORROWED
        if self._held_by_provider(now_ns, cls, event):
            return WaitCause.PROVIDER_LIMIT
        return WaitCause.MODEL_SLOW if self._slow(now_ns, cls, request) else WaitCause.CAPACITY

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

    def _lent_out(self, cls: ServiceClass, *, started: bool) -> bool:
        """Whether it is below its share while another class of the pool is over its own."""
        own = cls.share
        if own.slots_used - started >= own.nominal_slots or own.units_used >= own.nominal_units:
            return False
        return any(cls.pool.borrowing(share) for share in cls.pool.shares.values() if share is not own)

    def _held_by_provider(self, now_ns: int, cls: ServiceClass, event: Event) -> bool:
        """A pause took half of its wait, or a slot is free and the bucket would not let another call go."""
        limits = self._dispatcher.limits
        waited_ns = event.waited_ns if isinstance(event, Dispatched) else 0
        if limits.paused_until_ns > now_ns - waited_ns // 2:
            return True
        free = cls.pool.slots_free > 0
        return free and limits.ready_ns(provider_tokens(event.request)) > now_ns

    def _slow(self, now_ns: int, cls: ServiceClass, request: Request) -> bool:
        """Calls that ended lately took long, or half of those in service have been there for too long."""
        pace = self._paces.get(self._known(request.model))
        if pace is not None and pace.ratio >= SLOW:
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

    def _pace(self, model: str) -> Pace:
        known = self._known(model)
        pace = self._paces.get(known)
        if pace is None:
            pace = self._paces[known] = Pace()
        return pace

    def _known(self, model: str) -> str:
        return model if model in self._paces or len(self._paces) < MODELS else ""


def _is_of_load(event: Event) -> bool:
    if isinstance(event, Dispatched):
        return True
    reason = event.reason
    if isinstance(event, Expired):
        return reason is not Reason.LEASE_EXPIRED
    if reason.value in _OWN_LIMITS:
        return True
    return reason not in _NOT_LOAD and (reason.invites_retry or reason is Reason.DEADLINE_UNMEETABLE)
