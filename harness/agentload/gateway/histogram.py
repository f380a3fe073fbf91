"""Counts durations in fixed buckets, as Prometheus wants them. PURE."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds, inclusive, in seconds; what is longer falls into a last bucket without a bound."""


class Histogram:
    """How many values fell into which bucket, and their sum."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        """Values seen."""
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), the last one for `+Inf`, as the text format has them."""
        rows: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            below += count
            rows.append((bound, float(below)))
        return rows
