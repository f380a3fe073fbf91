"""A metronome."""

from __future__ import annotations

from random import Random
from typing import Self

from agentload.arrivals import ArrivalProcess, Rate
from agentload.model import NS


class Constant(ArrivalProcess):
    """`{kind: constant, rate: 10}`: evenly spaced, starting at a random point of the first gap.

    The random start keeps tenants of one rate from arriving in the same instants.
    """

    rate: Rate
    """Requests per second."""

    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """One draw."""
        gap_ns = NS / self.rate
        first_ns = start_ns + random.random() * gap_ns
        count = max(0, int((end_ns - first_ns) / gap_ns) + 1)
        times = [int(first_ns + index * gap_ns) for index in range(count)]
        return [at for at in times if at < end_ns]

    def mean_count(self, seconds: float) -> float:
        """Rate times length."""
        return self.rate * seconds

    def scaled(self, factor: float) -> Self:
        """Another rate."""
        return self.model_copy(update={"rate": self.rate * factor})
