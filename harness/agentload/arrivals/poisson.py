"""Independent callers: exponential gaps."""

from __future__ import annotations

from math import log1p
from random import Random
from typing import Self

from agentload.arrivals import ArrivalProcess, Rate
from agentload.model import NS


class Poisson(ArrivalProcess):
    """`{kind: poisson, rate: 267}`: exponential gaps with mean 1/rate, so that counts vary, too."""

    rate: Rate
    """Requests per second, on average."""

    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """One draw per request, by inverse CDF, and one for the gap that leaves the window."""
        times: list[int] = []
        mean_gap_ns = NS / self.rate
        at = float(start_ns)
        while True:
            at -= log1p(-random.random()) * mean_gap_ns
            if at >= end_ns:
                return times
            times.append(int(at))

    def mean_count(self, seconds: float) -> float:
        """Rate times length."""
        return self.rate * seconds

    def scaled(self, factor: float) -> Self:
        """Another rate."""
        return self.model_copy(update={"rate": self.rate * factor})
