"""The scheduler at one instant, in numbers."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest

import msgspec

from agentload.scheduler.binding import Binding, binding
from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import EstimationConfig
from agentload.scheduler.congestion import UNLIMITED
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.limits import ProviderLimits
from agentload.scheduler.pool import Pool
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import UNIT


class Counters(msgspec.Struct):
    """Requests by how they ended. At any instant offered = refused + admitted and
    admitted = completed + failed + expired + cancelled + evicted + running + waiting."""

    offered: int = 0
    refused: int = 0
    """Never admitted; by reason in `refused_by`. Evicted ones are counted apart."""
    admitted: int = 0
    """Dispatched at once or let into a queue."""
    dispatched: int = 0
    completed: int = 0
    failed: int = 0
    """Ended without an answer, or lost with their lease."""
    expired: int = 0
    cancelled: int = 0
    evicted: int = 0
    provider_refusals: int = 0
    """Times the provider would not take a call: 429, 503, 529, or no connection."""
    retried: int = 0
    """Times a call that failed went back to its queue. Such a request counts as admitted once."""
    refused_by: dict[Reason, int] = msgspec.field(default_factory=dict[Reason, int])
    estimated_output_tokens: int = 0
    """Of completed calls, as expected when they began."""
    output_tokens: int = 0
    """Of completed calls, as produced."""
    underestimated_output_tokens: int = 0
    """Of these, what was not expected: too little of one call is not made up for by too much of another."""

    def note_estimate(self, estimated: int, produced: int) -> None:
        """A call was completed."""
        self.estimated_output_tokens += estimated
        self.output_tokens += produced
        if produced > estimated:
            self.underestimated_output_tokens += produced - estimated


class ClassSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One service class."""

    pool: str
    waiting: int
    waiting_units: float
    waiting_bytes: int
    oldest_wait_ns: int
    """Age of the oldest that waits; 0 when nothing does."""
    max_wait_ns: int
    """The age at which one is answered 504."""
    running: int
    reserved_units: float
    floor_units: float
    nominal_units: float
    limit_units: float | None
    """What it may use at most, its nominal share and what it may borrow; None: whatever is there."""
    borrowing: bool
    """It uses more than its nominal share."""
    borrowed_units: float = 0.0
    """Work units beyond the nominal share."""
    tag: float = 0.0
    """Its place among classes in virtual time, in micro-units per weight."""
    binding: Binding | None = None
    """What the next in line waits for; None when nothing waits, or nothing keeps it."""
    promised_until_ns: int = 0
    """The last place in the queue that a refused caller was promised; at or before `at_ns`: none is open."""


class LaneSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant in one class."""

    weight: float
    tag: float
    """Its place in virtual time, in micro-units per weight: the least goes next."""
    waiting: int
    waiting_units: float
    running: int
    at_cap: bool
    """It has as many calls in flight as a tenant may."""


class TenantSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant, over all its classes."""

    waiting: int
    running: int
    lanes: dict[str, LaneSnapshot] = msgspec.field(default_factory=dict[str, LaneSnapshot])
    """By class."""


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One pool."""

    capacity_units: float
    reserved_units: float
    slots: int
    reserved_slots: int
    headroom_slots: int
    """Kept free for classes below their nominal share of the rest."""
    scale_out: bool
    """More slots or units would help: in the last minute somebody was refused for want of them while the
    provider would have taken more."""
    scale_out_because: str
    """Who, and for want of what; empty when it would not."""
    leases: int = 0
    """Calls that hold capacity."""
    lease_age_ns: int = 0
    """For how long the longest silent of them has not been heard of."""


class ProviderSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Our side of the provider's limits. None where nothing is limited."""

    tokens: float | None
    """Tokens left in the bucket; negative in debt."""
    requests: float | None
    paused_ns: int
    """How long dispatching is still paused, because the provider asked for it."""
    in_flight: int
    """Calls that are being made."""
    max_in_flight: float | None
    """Calls that may be made at once, since the provider refused some; None: as many as the pools allow."""
    held_ns: int | None = None
    """For how long the next in line, for whom there is a place, has been waiting for the provider's limits;
    None while nobody is."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at `at_ns`."""

    at_ns: int
    draining: bool
    waiting: int
    running: int
    oldest_wait_ns: int
    classes: dict[str, ClassSnapshot]
    tenants: dict[str, TenantSnapshot]
    """Tenants with anything waiting or running, those with most first, at most as many as asked for."""
    tenants_held: int
    """Tenants that state is kept for, idle ones with debts included; one counts in each of its classes."""
    pools: dict[str, PoolSnapshot]
    provider: ProviderSnapshot
    counters: Counters
    """A copy."""
    models: dict[str, ProviderSnapshot] = msgspec.field(default_factory=dict[str, ProviderSnapshot])
    """The same of the models that have limits of their own."""


def take_snapshot(
    now_ns: int,
    dispatcher: Dispatcher,
    counters: Counters,
    *,
    draining: bool,
    tenants: int,
    held_since_ns: int | None = None,
    coefficients: EstimationConfig,
) -> Snapshot:
    """Read everything; changes nothing. `coefficients`: to tell what wide jobs are wide with."""
    limits = dispatcher.limits
    classes = {
        cls.name: _class(now_ns, cls, binding(now_ns, cls, limits, coefficients))
        for cls in dispatcher.classes.values()
    }
    return Snapshot(
        at_ns=now_ns,
        draining=draining,
        waiting=sum(c.waiting for c in classes.values()),
        running=sum(c.running for c in classes.values()),
        oldest_wait_ns=max(c.oldest_wait_ns for c in classes.values()),
        classes=classes,
        tenants=_tenants(dispatcher, tenants) if tenants else {},
        tenants_held=sum(len(cls.queue.lanes) for cls in dispatcher.classes.values()),
        pools={pool.name: _pool(now_ns, pool) for pool in dispatcher.pools},
        provider=_provider(now_ns, dispatcher.limits, held_since_ns),
        counters=msgspec.structs.replace(counters, refused_by=dict(counters.refused_by)),
        models={
            name: _provider(now_ns, route.limits, None)
            for name, route in dispatcher.routes.all.items()
            if name
        },
    )


def _class(now_ns: int, cls: ServiceClass, binds: Binding | None) -> ClassSnapshot:
    queue, share = cls.queue, cls.share
    return ClassSnapshot(
        pool=cls.pool.name,
        waiting=len(queue.waiting),
        waiting_units=queue.work / UNIT,
        waiting_bytes=queue.bytes,
        oldest_wait_ns=0 if (oldest_ns := cls.oldest_ns()) is None else now_ns - oldest_ns,
        max_wait_ns=cls.max_wait_ns,
        running=share.slots_used,
        reserved_units=share.units_used / UNIT,
        floor_units=share.floor_units / UNIT,
        nominal_units=share.nominal_units / UNIT,
        limit_units=None if share.limit is None else share.limit_units / UNIT,
        borrowing=cls.pool.borrowing(share),
        borrowed_units=max(0, share.units_used - share.nominal_units) / UNIT,
        tag=share.tag,
        binding=binds,
        promised_until_ns=cls.promises.until_ns,
    )


def _tenants(dispatcher: Dispatcher, most: int) -> dict[str, TenantSnapshot]:
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for cls in dispatcher.classes.values():
        for name, lane in cls.queue.lanes.items():
            if not lane.idle:
                waiting[name] += len(lane.waiting)
                running[name] += lane.running
    heaviest = nlargest(most, waiting, key=lambda name: (waiting[name] + running[name], name))
    return {
        name: TenantSnapshot(waiting=waiting[name], running=running[name], lanes=_lanes(dispatcher, name))
        for name in heaviest
    }


def _lanes(dispatcher: Dispatcher, tenant: str) -> dict[str, LaneSnapshot]:
    found: dict[str, LaneSnapshot] = {}
    for cls in dispatcher.classes.values():
        lane = cls.queue.lanes.get(tenant)
        if lane is not None and not lane.idle:
            found[cls.name] = LaneSnapshot(
                weight=lane.weight,
                tag=lane.tag,
                waiting=len(lane.waiting),
                waiting_units=lane.work / UNIT,
                running=lane.running,
                at_cap=lane.blocked,
            )
    return found


def _pool(now_ns: int, pool: Pool) -> PoolSnapshot:
    advice = pool.scale_out.advice(now_ns)
    return PoolSnapshot(
        capacity_units=pool.capacity / UNIT,
        reserved_units=pool.units_used / UNIT,
        slots=pool.slots,
        reserved_slots=pool.slots_used,
        headroom_slots=pool.headroom_slots,
        scale_out=advice is not None,
        scale_out_because=advice or "",
        leases=len(pool.leases),
        lease_age_ns=pool.leases.silent_ns(now_ns),
    )


def _provider(now_ns: int, limits: ProviderLimits, held_since_ns: int | None) -> ProviderSnapshot:
    return ProviderSnapshot(
        tokens=None if limits.tokens is None else limits.tokens.level(now_ns),
        requests=None if limits.requests is None else limits.requests.level(now_ns),
        paused_ns=max(0, limits.paused_until_ns - now_ns),
        held_ns=None if held_since_ns is None else now_ns - held_since_ns,
        in_flight=limits.window.in_flight,
        max_in_flight=None if limits.window.limit == UNLIMITED else limits.window.limit,
    )
