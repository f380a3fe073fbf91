"""What must hold at every step, whatever the load: a run in which it does not is a defect, not a finding.

Cheap sums are looked at after every event; the scheduler's own snapshot after every so many.
"""

from __future__ import annotations

from typing import ClassVar

from agentload.gateway.core import GatewayCore
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.snapshot import ClassSnapshot, Snapshot
from fake_provider.core import Provider

EVERY = 32
"""Events of the gateway between two looks at its snapshot, which costs as much as an event does."""
_SHOWN = 300


class InvariantError(Exception):
    """Something that can never be was seen; the text says what, when, and after which event."""


class Watch:
    """Looks at gateway and provider after every event."""

    asserts: ClassVar[bool] = True

    def __init__(
        self, gateway: GatewayCore, config: GatewayConfig, provider: Provider, grain_ns: int
    ) -> None:
        """`grain_ns`: how late a timer may be, and so how much older than its bound a waiting request."""
        self._gateway = gateway
        self._provider = provider
        self._grain_ns = grain_ns
        self._classes = {name: one for pool in config.pools.values() for name, one in pool.classes.items()}
        self._events = 0
        self.looks = 0
        """Snapshots looked at."""

    def replaced(self, gateway: GatewayCore) -> None:
        """The gateway was started anew: from now on look at this one."""
        self._gateway = gateway

    def gateway(self, now_ns: int, event: object) -> None:
        """After an event of the gateway. Raises InvariantError."""
        self._events += 1
        if self._events % EVERY == 0:
            self.look(now_ns, event)

    def provider(self, now_ns: int) -> None:
        """After an event of the provider. Raises InvariantError."""
        provider = self._provider
        if not provider.ledger.counts.conserved():
            raise _violated(f"the provider's sums do not add up: {provider.ledger.counts}", now_ns, None)
        slots = provider.config.slots
        if slots is not None and provider.in_service > slots:
            raise _violated(f"the provider serves {provider.in_service} calls in {slots} slots", now_ns, None)

    def look(self, now_ns: int, event: object = None) -> Snapshot:
        """At everything that the scheduler says about itself. Raises InvariantError."""
        self.looks += 1
        seen = self._gateway.admission.snapshot(now_ns, tenants=0)
        for wrong in (self._unconserved(seen), self._overcommitted(seen), self._unbounded(seen)):
            if wrong:
                raise _violated(wrong, now_ns, event)
        return seen

    def _unconserved(self, seen: Snapshot) -> str | None:
        """Requests are neither lost nor doubled: the metrics' own promise."""
        c = seen.counters
        if c.offered != c.refused + c.admitted:
            return f"offered {c.offered} is not refused {c.refused} + admitted {c.admitted}"
        ended = c.completed + c.failed + c.expired + c.cancelled + c.evicted
        if c.admitted != ended + seen.running + seen.waiting:
            now = f"running {seen.running} + waiting {seen.waiting}"
            return f"admitted {c.admitted} is not ended {ended} + {now}"
        if self._gateway.open_requests != seen.running + seen.waiting:
            known = f"running {seen.running} + waiting {seen.waiting}"
            return f"{self._gateway.open_requests} requests are open, but the scheduler knows {known}"
        return None

    def _overcommitted(self, seen: Snapshot) -> str | None:
        """No more is granted than there is."""
        for name, pool in seen.pools.items():
            if pool.reserved_slots > pool.slots:
                return f"pool {name}: {pool.reserved_slots} slots are taken of {pool.slots}"
            if pool.reserved_units > pool.capacity_units + 1e-6:
                return f"pool {name}: {pool.reserved_units} units are taken of {pool.capacity_units}"
            if min(pool.reserved_slots, pool.reserved_units) < 0:
                return f"pool {name}: more was given back than taken"
        return None

    def _unbounded(self, seen: Snapshot) -> str | None:
        """Every queue stays within its bounds: number, bytes, units, age."""
        for name, one in seen.classes.items():
            wrong = self._class_unbounded(name, one)
            if wrong:
                return f"class {name}: {wrong}"
        return None

    def _class_unbounded(self, name: str, seen: ClassSnapshot) -> str | None:
        bounds = self._classes[name]
        if seen.waiting > bounds.max_queue:
            return f"{seen.waiting} requests wait, {bounds.max_queue} may"
        if seen.waiting_bytes > bounds.max_queue_bytes:
            return f"{seen.waiting_bytes} bytes wait, {bounds.max_queue_bytes} may"
        if bounds.max_queue_units is not None and seen.waiting_units > bounds.max_queue_units + 1e-6:
            return f"{seen.waiting_units} units wait, {bounds.max_queue_units} may"
        if seen.oldest_wait_ns > bounds.max_wait_s * 1e9 + self._grain_ns:
            return f"one has waited {seen.oldest_wait_ns / 1e9:.3f} s, {bounds.max_wait_s:g} s is the most"
        return None


class NoWatch(Watch):
    """For mutants that violate an invariant on purpose: looks at nothing."""

    asserts: ClassVar[bool] = False

    def gateway(self, now_ns: int, event: object) -> None:
        """Nothing."""

    def provider(self, now_ns: int) -> None:
        """Nothing."""

    def look(self, now_ns: int, event: object = None) -> Snapshot:  # noqa: ARG002
        """The snapshot, whatever it says."""
        self.looks += 1
        return self._gateway.admission.snapshot(now_ns, tenants=0)


def _violated(what: str, now_ns: int, event: object) -> InvariantError:
    after = "" if event is None else f", after {event!r:.{_SHOWN}}"
    return InvariantError(f"at {now_ns / 1e9:.6f} s: {what}{after}")
