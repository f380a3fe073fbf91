"""A staircase of rates."""

from __future__ import annotations

from random import Random
from typing import Self

from pydantic import Field

from agentload.arrivals import ArrivalProcess, Rate
from agentload.model import NS


class Steps(ArrivalProcess):
    """`{kind: steps, rates: [10, 20, 40], every_s: 2}`: each rate for so long, evenly spaced; then none.

    Where does it begin to hurt? Each step is its own metronome with a random start.
    """

    rates: tuple[Rate, ...] = Field(min_length=1, max_length=100)
    """Requests per second, one step after another, from the beginning of the phase."""
    every_s: float = Field(ge=0.1, le=3_600)
    """How long a step is."""

    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """One draw per step, also for those that lie behind the end of the window."""
        times: list[int] = []
        for place, rate in enumerate(self.rates):
            step_ns = start_ns + round(place * self.every_s * NS)
            over_ns = min(end_ns, start_ns + round((place + 1) * self.every_s * NS))
            gap_ns, first_ns = NS / rate, step_ns + random.random() * NS / rate
            count = max(0, int((over_ns - first_ns) / gap_ns) + 1)
            times += [at for index in range(count) if (at := int(first_ns + index * gap_ns)) < over_ns]
        return times

    def mean_count(self, seconds: float) -> float:
        """Rates times the parts of their steps that lie in the window."""
        return sum(
            rate * min(self.every_s, max(0.0, seconds - place * self.every_s))
            for place, rate in enumerate(self.rates)
        )

    def scaled(self, factor: float) -> Self:
        """Every rate."""
        return self.model_copy(update={"rates": tuple(rate * factor for rate in self.rates)})
