"""A rate that climbs or falls."""

from __future__ import annotations

from math import log1p, sqrt
from random import Random
from typing import Self

from pydantic import Field

from agentload.arrivals import MAX_RATE, ArrivalProcess, Rate
from agentload.model import NS


class Ramp(ArrivalProcess):
    """`{kind: ramp, from_rate: 10, to_rate: 100}`: Poisson, the rate changing linearly over each phase."""

    from_rate: float = Field(ge=0, le=MAX_RATE)
    """Requests per second at the start of the phase."""
    to_rate: Rate
    """Requests per second at its end."""

    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """A unit-rate Poisson process, mapped through the inverse of the cumulative rate (Çinlar 1975)."""
        seconds = (end_ns - start_ns) / NS
        slope = (self.to_rate - self.from_rate) / seconds
        times: list[int] = []
        expected = 0.0
        total = self.mean_count(seconds)
        while (expected := expected - log1p(-random.random())) < total:
            # Solves from_rate·t + slope·t²/2 = expected, in the form that is stable around slope 0.
            root = sqrt(max(0.0, self.from_rate**2 + 2 * slope * expected))
            at_ns = start_ns + int(2 * expected / (self.from_rate + root) * NS)
            times.append(min(at_ns, end_ns - 1))
        return times

    def mean_count(self, seconds: float) -> float:
        """The mean rate times the length."""
        return (self.from_rate + self.to_rate) / 2 * seconds

    def scaled(self, factor: float) -> Self:
        """Both rates."""
        return self.model_copy(
            update={"from_rate": self.from_rate * factor, "to_rate": self.to_rate * factor}
        )
