"""How many tools may be called at once, and whose turn it is. PURE.

Tools use none of the provider's capacity, so they do not pass admission; but nothing here is without a bound:
so many calls in all, so many of one tenant, and tenants take turns.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush


class _Tenant:
    __slots__ = ("ready", "used")

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.used = 0


class ToolGate:
    """Tool steps by the number of their job. A slot is held from `next` to `free`."""

    def __init__(self, slots: int, tenant_slots: int) -> None:
        self._slots = slots
        self._tenant_slots = tenant_slots
        self._used = 0
        self._tenants: dict[str, _Tenant] = {}
        self._turns: deque[str] = deque()
        """Tenants with steps that wait, each once, in the order of their turns."""

    @property
    def used(self) -> int:
        """Slots that are held."""
        return self._used

    def ready(self, tenant: str, number: int) -> None:
        """A step of the tenant's could be called now."""
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants[tenant] = _Tenant()
        if not known.ready:
            self._turns.append(tenant)
        heappush(known.ready, number)

    def next(self) -> tuple[str, int] | None:
        """Tenant and job whose tool may be called now, which takes a slot; None when none may."""
        if self._used >= self._slots:
            return None
        for _ in range(len(self._turns)):
            tenant = self._turns.popleft()
            known = self._tenants[tenant]
            if known.used >= self._tenant_slots:
                self._turns.append(tenant)
                continue
            number = heappop(known.ready)
            if known.ready:
                self._turns.append(tenant)
            known.used += 1
            self._used += 1
            return tenant, number
        return None

    def free(self, tenant: str) -> None:
        """A slot is given back."""
        known = self._tenants[tenant]
        known.used -= 1
        self._used -= 1
        if not known.used and not known.ready:
            del self._tenants[tenant]
