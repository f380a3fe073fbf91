"""Which tenants have a label of their own in the metrics. PURE.

A label for every tenant that was ever seen would make the metrics grow for ever: configured tenants come
first, others once they have come often enough, and the rest is `other`.
"""

from __future__ import annotations

from collections.abc import Iterable

OTHER = "other"
_REGULAR_AFTER = 20
_CANDIDATES = 4_096


class TenantLabels:
    """Bounded, whoever comes: `most` labels and `other`."""

    def __init__(self, configured: Iterable[str], most: int) -> None:
        self._named = set(list(configured)[:most])
        self._most = most
        self._seen: dict[str, int] = {}

    def of(self, tenant: str) -> str:
        """The tenant's label. One that has once got its own keeps it, so that counters never go back."""
        if tenant in self._named:
            return tenant
        if len(self._named) >= self._most:
            return OTHER
        if len(self._seen) >= _CANDIDATES:
            self._seen.clear()
        times = self._seen[tenant] = self._seen.get(tenant, 0) + 1
        if times >= _REGULAR_AFTER:
            self._named.add(tenant)
            del self._seen[tenant]
        return OTHER
