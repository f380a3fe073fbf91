"""How late this process is: a heartbeat that sees stalls, and how long after being due tokens went out.

Whoever judges a run needs both: what was measured while the machine stood still says nothing about a gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

PERIOD_NS = 10_000_000
STALL_NS = 50_000_000
MAX_STALLS = 10_000
_BUCKET_NS = 100_000
_BUCKETS = 10_000


class Stall(msgspec.Struct, frozen=True):
    """A stretch in which the event loop did not run, on the provider's clock."""

    start_ns: int
    end_ns: int


class Heartbeat:
    """Beats every 10 ms; a beat more than 50 ms late is a stall."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._due_ns = clock_ns() + PERIOD_NS
        self.stalls: list[Stall] = []

    async def run(self) -> None:
        """Beats until it is cancelled."""
        while True:
            await asyncio.sleep(PERIOD_NS / 1e9)
            self.beat(self._clock_ns())

    def beat(self, now_ns: int) -> None:
        """One beat, seen at `now_ns`."""
        if now_ns - self._due_ns > STALL_NS and len(self.stalls) < MAX_STALLS:
            self.stalls.append(Stall(self._due_ns, now_ns))
        self._due_ns = now_ns + PERIOD_NS


class Lateness:
    """Time from due to sent, in steps of 0.1 ms up to 1 s; more counts as 1 s (the maximum is exact)."""

    def __init__(self) -> None:
        self._counts = [0] * (_BUCKETS + 1)
        self._n = 0
        self._max_ns = 0

    def record(self, late_ns: int) -> None:
        """One piece was sent so long after it was due."""
        late_ns = max(0, late_ns)
        self._counts[min(late_ns // _BUCKET_NS, _BUCKETS)] += 1
        self._n += 1
        self._max_ns = max(self._max_ns, late_ns)

    def quantile_ms(self, q: float) -> float | None:
        """Upper edge of the step that holds quantile `q`, in milliseconds; None without samples."""
        rank, seen = q * self._n, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return (bucket + 1) * _BUCKET_NS / 1e6
        return None

    def summary(self) -> dict[str, Any]:
        """p50, p99 and maximum in milliseconds, and the number of samples."""
        top = self._max_ns / 1e6 if self._n else None
        return {"p50": self.quantile_ms(0.5), "p99": self.quantile_ms(0.99), "max": top, "n": self._n}
