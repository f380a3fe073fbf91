"""How much of what waits in the gateway could have started, by the gateway's own rules: slots, caps, classes.

Seen from outside, from the clients' waits and the provider's ledger. What a job's width in work units adds to
these rules is not: only the gateway knows its estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
            startable = sum(pool.startable() for pool in self._pools) if free else 0
            idle.append((change.at_ns, min(free, startable)))
            eligible.append((change.at_ns, sum(pool.eligible() for pool in self._pools)))
        return idle, eligible

    def _apply(self, change: Change) -> None:
        self._busy += change.running
        if change.tenant in self._places:
            pool, service_class = self._places[change.tenant]
            pool.change(change.tenant, service_class, change.waiting, change.running)


class _Room:
    """One pool: what waits for it, and what of that its rules would let start."""

    def __init__(self, pool: Pool, own: Mapping[str, int], tenant_slots: int | None) -> None:
        self.classes: Mapping[str, ClassShare] = pool.shares
        self._pool, self._own = pool, {} if tenant_slots else own
        self._cap = tenant_slots or pool.tenant_slots * pool.lanes_each
        self._waiting: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._used = dict.fromkeys(pool.shares, 0)
        self._below_cap = dict.fromkeys(pool.shares, 0)
        """By class: what waits, of tenants below their caps."""

    def change(self, tenant: str, service_class: str, waiting: int, running: int) -> None:
        before = self._of(tenant)
        self._waiting[tenant] = self._waiting.get(tenant, 0) + waiting
        self._running[tenant] = self._running.get(tenant, 0) + running
        self._used[service_class] += running
        self._below_cap[service_class] += self._of(tenant) - before

    def eligible(self) -> int:
        """What waits and is neither beyond its tenant's cap nor beyond its class's limit."""
        return sum(self._within_limit(name, self._used) for name in self.classes)

    def startable(self) -> int:
        """How much of that could start at once, those first that are below their floors."""
        used = dict(self._used)
        for name in sorted(self.classes, key=lambda name: used[name] >= self.classes[name].floor_slots):
            used[name] += max(0, min(self._within_limit(name, used), self._free_for(name, used)))
        return sum(used.values()) - sum(self._used.values())

    def _of(self, tenant: str) -> int:
        """What of a tenant's waiting work its cap lets go."""
        room = self._own.get(tenant, self._cap) - self._running.get(tenant, 0)
        return max(0, min(self._waiting.get(tenant, 0), room))

    def _within_limit(self, name: str, used: Mapping[str, int]) -> int:
        share, wanted = self.classes[name], self._below_cap[name]
        return wanted if share.limit is None else max(0, min(wanted, share.limit_slots - used[name]))

    def _free_for(self, name: str, used: Mapping[str, int]) -> int:
        """Slots of the pool that are neither taken nor kept for other classes, nor headroom."""
        free = self._pool.slots - sum(used.values())
        kept = sum(max(0, s.floor_slots - used[n]) for n, s in self.classes.items() if n != name)
        steady = max(0, self.classes[name].steady_slots - used[name])
        if self._pool.headroom_slots and self.classes[name].bounded:
            return min(free - kept, max(steady, free - max(kept, self._pool.headroom_slots)))
        return free - kept
