"""Service classes seen from outside: what each has at the provider, wants, and has waiting.

The class is the one that the client asked for; everything else comes from the provider's ledger and the
client's records, so that it holds for any gateway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from agentload.evidence.fairness import TRANSIT_NS
from agentload.evidence.hidden_queue import Wait, waits
from agentload.evidence.intervals import (
    Interval,
    Step,
    area,
    clip,
    intersect,
    length_ns,
    merge,
    overlap_count,
)
from agentload.model import LedgerEntry, Profile, Run, Tenant
from agentload.scheduler.pool import ClassShare, Pool


class ClassView(msgspec.Struct, frozen=True):
    """Some classes together, over the whole run."""

    in_service: list[Step]
    """Their calls in service at the provider."""
    demand: list[Step]
    """Their requests waiting in the gateway or in service."""
    backlog: list[Interval]
    """When they had work waiting for longer than the way through an idle gateway."""
    waits: list[Wait]
    """Each attempt's wait in the gateway."""

    def mean_in_service(self, windows: Collection[Interval]) -> float:
        """Calls in service on average over disjoint windows; 0 where there are none."""
        length = length_ns(windows)
        return area(self.in_service, windows) / length if length else 0.0


class ClassViews:
    """Looks at one run's classes; what all views share is worked out once."""

    def __init__(self, run: Run) -> None:
        self._class_of = {record.seq: record.service_class for record in run.records}
        self._ledger = run.ledger
        self._waits = waits(run.records, run.ledger)
        self._end_ns = run.profile.duration_ns

    @property
    def names(self) -> list[str]:
        """The classes that anybody asked for, in the order in which they are met."""
        return list(dict.fromkeys(self._class_of.values()))

    def of(self, names: Collection[str]) -> ClassView:
        """These classes, taken together."""
        wanted = set(names)
        served = [
            (call.started_ns, self._ended_ns(call))
            for call in self._ledger
            if call.started_ns is not None and call.seq is not None and self._class_of.get(call.seq) in wanted
        ]
        waited = [wait for wait in self._waits if self._class_of[wait.seq] in wanted]
        held = [(wait.start_ns, wait.end_ns) for wait in waited]
        backlog = merge((start, end) for start, end in held if end - start > TRANSIT_NS)
        return ClassView(overlap_count(served), overlap_count([*held, *served]), backlog, waited)

    def others(self, names: Collection[str]) -> ClassView:
        """All classes but these."""
        return self.of([name for name in self.names if name not in names])

    def _ended_ns(self, call: LedgerEntry) -> int:
        return self._end_ns if call.ended_ns is None else call.ended_ns


def class_share(of: Profile, name: str) -> ClassShare | None:
    """What the profile's gateway is configured to grant a class; None when it has no such class."""
    for pool_name, config in of.gateway.pools.items():
        if name in config.classes:
            return Pool(pool_name, config).shares[name]
    return None


def most_slots(of: Profile, names: Collection[str], phase: str) -> int | None:
    """Slots that classes may use at once in a phase, borrowing included; None where the gateway has none of
    them."""
    there = [t for t in of.tenants if t.service_class in names and (not t.during or phase in t.during)]
    own = {name: one.slots for name, one in of.gateway.tenants.items() if one.slots is not None}
    pools = [Pool(name, one, own) for name, one in of.gateway.pools.items()]
    return sum(_most_in(pool, set(names) & set(pool.shares), there) for pool in pools) or None


def _most_in(pool: Pool, names: Collection[str], tenants: Collection[Tenant]) -> int:
    mine = [share for name, share in pool.shares.items() if name in names]
    if not mine:
        return 0
    limits = sum(pool.slots if share.limit is None else share.limit_slots for share in mine)
    caps = sum(pool.cap(tenant.name) for tenant in tenants if tenant.service_class in names)
    kept = sum(share.floor_slots for name, share in pool.shares.items() if name not in names)
    return min(limits, caps, pool.slots - max(kept, pool.headroom_slots))


def at_most(steps: Iterable[Step], most: int) -> list[Step]:
    """A step function, cut off at a height."""
    return [(at_ns, min(value, most)) for at_ns, value in steps]


def backlogged_in(view: ClassView, windows: Iterable[Interval]) -> list[Interval]:
    """The parts of some windows in which the view's classes had work waiting."""
    return intersect(view.backlog, merge(windows))


def waited_ns(view: ClassView, window: Interval) -> list[int]:
    """How long the attempts that were sent within a window waited."""
    return [wait.length_ns for wait in view.waits if window[0] <= wait.start_ns < window[1]]


def later(window: Interval, by_ns: int) -> list[Interval]:
    """The window without its first moments; nothing where it is no longer than they are."""
    return clip([window], (window[0] + by_ns, window[1]))
