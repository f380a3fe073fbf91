"""A referee for start-time fair queueing with bounds and caps: written once more, as plainly as possible.

It keeps lists where the scheduler keeps heaps and running sums, adds everything up anew for each decision,
and shares no code with it. It does not say who must go next but whether who went was allowed to: of equals
anyone. One pool with one class, no provider limits, no deadlines, nobody ever gathers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentload.scheduler.admission import Admission, Dispatched, Event, Refused, Request
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.reasons import Reason
from scheduler_kit import MS, Exact, Scene, gateway

UNIT = 1_000_000
PER_TOKEN = 1_000
"""Micro-units of a token."""
SLEEPER_CREDIT = 2 * UNIT
CATCH_UP = 4
ROUNDING = 0.01
"""Micro-units per weight by which two sums of the same numbers may differ."""


@dataclass
class Running:
    """One call in service."""

    request: Request
    charged: int
    epoch: int


@dataclass
class Tenant:
    """What the referee knows of one tenant."""

    weight: float
    tag: float = 0.0
    epoch: int = 0
    """How often its tag was lifted."""
    waiting: list[Request] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)

    def lift(self, to: float) -> None:
        """No credit for the time that it had nothing to do; a debt is kept."""
        if self.tag < to:
            self.tag, self.epoch = to, self.epoch + 1


class Referee:
    """Plays a scheduler and looks at every decision. Raises AssertionError at the first wrong one."""

    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        slots: int = 3,
        cap: int = 2,
        units: int = 6,
        max_queue: int = 5,
        tenant_max_queue: int = 3,
        policy: type[FairQueue] | None = None,
        admission: type[Admission] = Exact,
    ) -> None:
        config = gateway(
            slots=slots,
            tenant_slots=cap,
            capacity_units=units,
            weights=weights,
            max_queue=max_queue,
            tenant_max_queue=tenant_max_queue,
            gather_after_s=1e6,
        )
        self.scene = Scene(config, policy=policy, admission=admission)
        self.slots, self.cap, self.units = slots, cap, units * UNIT
        self.max_queue, self.tenant_max_queue = max_queue, tenant_max_queue
        self.tenants = {name: Tenant(weight) for name, weight in weights.items()}
        self.v = 0.0
        """The largest tag that was picked."""
        self.clock = 0.0
        """Work done per weight of those that had any."""
        self._seen = 0

    # -- what happens

    def submit(self, name: str, tokens: int, real_tokens: int | None = None) -> None:
        """A request arrives: it starts, waits, or is refused, and somebody may lose a place to it."""
        tenant = self.tenants[name]
        was_waiting, at_cap = bool(tenant.waiting), len(tenant.running) >= self.cap
        if not was_waiting and not at_cap:
            tenant.lift(max(self.v, self.clock - SLEEPER_CREDIT / tenant.weight))
        self.scene.now_ns += MS
        request = self.scene.submit(name, tokens, real_tokens=real_tokens)
        tenant.waiting.append(request)
        events = self._new_events()
        starts = [event for event in events if isinstance(event, Dispatched)]
        for event in starts:
            self._starts(event)
        self._refuses(request, [event for event in events if event not in starts])
        assert not self._eligible(), "somebody waits for nothing"

    def end(self, place: int, *, ok: bool = True) -> None:
        """One of the running calls ends: what it really cost is settled, and others may start."""
        everyone = [(t, run) for t in self.tenants.values() for run in t.running]
        if not everyone:
            return
        tenant, run = everyone[place % len(everyone)]
        real = self.scene.real_tokens(run.request) * PER_TOKEN if ok else 1
        in_service = sum(one.charged for one in tenant.running)
        was_at_cap = len(tenant.running) >= self.cap
        self._settle(tenant, run, max(1, real))
        active = sum(t.weight for t in self.tenants.values() if t.waiting or t.running)
        self.clock += max(1, real) / active
        tenant.running.remove(run)
        if was_at_cap and tenant.waiting:
            tenant.lift(self.v - CATCH_UP * in_service / tenant.weight)
        self.scene.now_ns += MS
        self.scene.end(run.request, ok=ok)
        for event in self._new_events():
            assert isinstance(event, Dispatched)
            self._starts(event)
        assert not self._eligible(), "somebody waits for nothing"

    def cancel(self, place: int) -> None:
        """One that waits leaves."""
        everyone = [(t, request) for t in self.tenants.values() for request in t.waiting]
        if not everyone:
            return
        tenant, request = everyone[place % len(everyone)]
        tenant.waiting.remove(request)
        self.scene.cancel(request)
        for event in self._new_events():
            assert isinstance(event, Dispatched)
            self._starts(event)
        assert not self._eligible(), "somebody waits for nothing"

    # -- what is allowed

    def _eligible(self) -> list[Tenant]:
        """Tenants whose oldest could start now."""
        running = [run for t in self.tenants.values() for run in t.running]
        if len(running) >= self.slots:
            return []
        free = self.units - sum(min(run.charged, self.units) for run in running)
        return [
            t
            for t in self.tenants.values()
            if t.waiting and len(t.running) < self.cap and min(work_of(t.waiting[0]), self.units) <= free
        ]

    def _starts(self, event: Dispatched) -> None:
        eligible = self._eligible()
        tenant = self.tenants[event.request.tenant]
        assert tenant in eligible, "no slot, no room, or at its cap"
        assert event.request is tenant.waiting[0], "first come, first served inside a tenant"
        least = min(t.tag for t in eligible)
        assert tenant.tag <= least + ROUNDING, f"picked at {tenant.tag}, while another was at {least}"
        self.v = max(self.v, tenant.tag)
        self.clock = max(self.clock, self.v)
        charged = work_of(event.request)
        tenant.running.append(Running(tenant.waiting.pop(0), charged, tenant.epoch))
        tenant.tag += charged / tenant.weight

    def _settle(self, tenant: Tenant, run: Running, real: int) -> None:
        tag = tenant.tag + (real - run.charged) / tenant.weight
        if real < run.charged and run.epoch != tenant.epoch:
            tag = max(tag, min(tenant.tag, self.v))  # it was forgiven: back to the present at most
        tenant.tag = tag

    def _refuses(self, newcomer: Request, events: list[Event]) -> None:
        """The newcomer for its tenant's bound or the class's; or the newest of whoever is furthest over its
        share."""
        tenant = self.tenants[newcomer.tenant]
        if newcomer not in tenant.waiting:
            assert not events, "nobody is refused for one that has started"
            return
        expected: Any = None
        victims = [newcomer]
        if len(tenant.waiting) > self.tenant_max_queue:
            expected = Reason.TENANT_QUEUE_FULL
        elif sum(len(t.waiting) for t in self.tenants.values()) > self.max_queue:
            most = max(_load(t) for t in self.tenants.values())
            evicts = most > _load(tenant)
            expected = Reason.EVICTED if evicts else Reason.CLASS_QUEUE_FULL
            if evicts:
                victims = [t.waiting[-1] for t in self.tenants.values() if _load(t) == most]
        if expected is None:
            assert not events
            return
        assert len(events) == 1
        event = events[0]
        assert isinstance(event, Refused)
        assert event.reason is expected
        assert event.request in victims
        self.tenants[event.request.tenant].waiting.remove(event.request)

    def _new_events(self) -> list[Event]:
        new = self.scene.events[self._seen :]
        self._seen = len(self.scene.events)
        return new


def work_of(request: Request) -> int:
    """Micro-units that it declares."""
    return (request.max_output_tokens or 0) * PER_TOKEN


def _load(tenant: Tenant) -> float:
    return len(tenant.waiting) / tenant.weight
