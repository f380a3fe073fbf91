"""A fixed number of requests at independent, uniform times."""

from __future__ import annotations

from random import Random
from typing import Self

from agentload.arrivals import ArrivalProcess, Rate
from agentload.model import NS


class Uniform(ArrivalProcess):
    """`{kind: uniform, rate: 6.5}`: exactly round(rate × seconds) requests in every phase.

    The times are uniform order statistics: a Poisson process given its count. Bursts and gaps are those of
    independent callers, but the number never varies, so that two phases compare equal numbers of samples.
    """

    rate: Rate
    """Requests per second."""

    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """One draw per request."""
        span = end_ns - start_ns
        count = round(self.rate * span / NS)
        return sorted(start_ns + int(random.random() * span) for _ in range(count))

    def mean_count(self, seconds: float) -> float:
        """Exact here."""
        return float(round(self.rate * seconds))

    def scaled(self, factor: float) -> Self:
        """Another rate."""
        return self.model_copy(update={"rate": self.rate * factor})
