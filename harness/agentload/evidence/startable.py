"""How much of what waits in the gateway could have started, by the gateway's own rules: slots, caps, classes,
and work units where it promises any.

Seen from outside, from the clients' waits and the provider's ledger. How wide a job is only the gateway
knows; each counts as wide as it may be at most (`agentload.evidence.widths`), so that what is called
startable could have started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agentload.evidence.intervals import Step
from agentload.model import Profile
from agentload.scheduler.pool import ClassShare, Pool

UNLIMITED = 1
"""Without slots the provider is idle or it is not: one unit of idleness."""


class Change(NamedTuple):
    """Something begins or ceases to wait, or to be in service."""

    at_ns: int
    tenant: str | None
    waiting: int
    running: int
    key: tuple[int, int] = (0, 0)
    """(seq, attempt) of what it is."""
    width: int = 0
    """Micro-units that it may need, at most."""


class Sweep:
    """Free slots and eligible work over time."""

    def __init__(self, of: Profile, slots: int | None, tenant_slots: int | None) -> None:
        """`slots` of the provider; `tenant_slots`: a cap for everybody, instead of the gateway's own."""
        own = {name: one.slots for name, one in of.gateway.tenants.items() if one.slots is not None}
        self._slots = slots
        self._busy = 0
        self._pools = [_Room(Pool(name, one), own, tenant_slots) for name, one in of.gateway.pools.items()]
        places = {name: pool for pool in self._pools for name in pool.classes}
        self._places = {
            tenant.name: (places[tenant.service_class], tenant.service_class)
            for tenant in of.tenants
            if tenant.service_class in places
        }

    def over(self, changes: Sequence[Change]) -> tuple[list[Step], list[Step]]:
        """(idle slots with work for them, eligible work) as step functions; changes in order of time."""
        idle: list[Step] = []
        eligible: list[Step] = []
        for index, change in enumerate(changes):
            self._apply(change)
            if index + 1 < len(changes) and changes[index + 1].at_ns == change.at_ns:
                continue
            free = UNLIMITED if self._slots is None else max(0, self._slots - self._busy)
            startable = sum(pool.startable(change.at_ns, free) for pool in self._pools) if free else 0
            idle.append((change.at_ns, min(free, startable)))
            eligible.append((change.at_ns, sum(pool.eligible() for pool in self._pools)))
        return idle, eligible

    def _apply(self, change: Change) -> None:
        self._busy += change.running
        if change.tenant in self._places:
            pool, service_class = self._places[change.tenant]
            pool.change(change, change.tenant, service_class)


class _Line:
    """What waits of one tenant."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], int] = {}
        """(seq, attempt) → when it came, the oldest first."""
        self._widths: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._since)

    def change(self, change: Change) -> None:
        """Something came, or is gone."""
        if change.waiting > 0:
            self._since[change.key] = change.at_ns
        else:
            del self._since[change.key]
        self._widths[change.width] += change.waiting
        if not self._widths[change.width]:
            del self._widths[change.width]

    @property
    def widest(self) -> int:
        """Micro-units of the widest: whoever comes first needs no more."""
        return max(self._widths)

    @property
    def oldest_ns(self) -> int:
        """When the oldest came."""
        return next(iter(self._since.values()))


class _Room:
    """One pool: what waits for it, and what of that its rules would let start."""

    def __init__(self, pool: Pool, own: Mapping[str, int], tenant_slots: int | None) -> None:
        self.classes: Mapping[str, ClassShare] = pool.shares
        self._pool, self._own = pool, {} if tenant_slots else own
        self._cap = tenant_slots or pool.tenant_slots * pool.lanes_each
        self._lines: dict[str, dict[str, _Line]] = {name: {} for name in pool.shares}
        """By class and tenant; empty ones are left out."""
        self._below_cap = dict.fromkeys(pool.shares, 0)
        """By class: what waits, of tenants below their caps."""

    def change(self, change: Change, tenant: str, service_class: str) -> None:
        before = self._of(tenant, service_class)
        if change.waiting:
            lines = self._lines[service_class]
            line = lines.setdefault(tenant, _Line())
            line.change(change)
            if not line:
                del lines[tenant]
        if change.running > 0:
            self._pool.take(self.classes[service_class], tenant, change.width)
        elif change.running < 0:
            self._pool.release(self.classes[service_class], tenant, change.width)
        self._below_cap[service_class] += self._of(tenant, service_class) - before

    def eligible(self) -> int:
        """What waits and is neither beyond its tenant's cap nor beyond its class's limit."""
        return sum(self._within_limit(name) for name in self.classes)

    def startable(self, now_ns: int, most: int) -> int:
        """How much of that could start at once, up to `most`, those first that are below their floors."""
        started: list[tuple[ClassShare, str, int]] = []
        by_need = sorted(self.classes.values(), key=lambda share: share.slots_used >= share.floor_slots)
        for share, tenant, line in self._candidates(by_need):
            width = line.widest
            for _ in range(min(most - len(started), self._of(tenant, share.name))):
                if width > self._pool.room(share):
                    break
                self._pool.take(share, tenant, width)
                started.append((share, tenant, width))
        for share, tenant, width in started:
            self._pool.release(share, tenant, width)
        return 0 if started and self._gathers(now_ns) else len(started)

    def _candidates(self, by_need: Sequence[ClassShare]) -> Iterator[tuple[ClassShare, str, _Line]]:
        """Tenants with something waiting, while there is a slot for their class."""
        for share in by_need:
            for tenant, line in self._lines[share.name].items():
                if self._pool.room(share) < 0:
                    break
                yield share, tenant, line

    def _gathers(self, now_ns: int) -> bool:
        """Whether the pool may be keeping its units for a wide job that has been passed for long enough."""
        return any(
            self._of(tenant, name) and line.widest > self._pool.room(self.classes[name])
            for name, lines in self._lines.items()
            for tenant, line in lines.items()
            if now_ns - line.oldest_ns >= self._pool.gather_after_ns
        )

    def _of(self, tenant: str, service_class: str) -> int:
        """What of a tenant's waiting work its cap lets go."""
        line = self._lines[service_class].get(tenant)
        room = self._own.get(tenant, self._cap) - self._pool.in_flight(tenant)
        return 0 if line is None else max(0, min(len(line), room))

    def _within_limit(self, name: str) -> int:
        share, wanted = self.classes[name], self._below_cap[name]
        return wanted if share.limit is None else max(0, min(wanted, share.limit_slots - share.slots_used))
