"""Many at once, again and again."""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Self

from pydantic import Field

from agentload.arrivals import ArrivalProcess
from agentload.extensive import grown
from agentload.model import NS


class Bursts(ArrivalProcess):
    """`{kind: bursts, size: 50, every_s: 10}`: so many at the start of the phase, and again every `every_s`.

    What cron jobs, batch pipelines and reconnecting clients do; bursts find races that sequences do not.
    """

    size: int = Field(ge=1, le=100_000)
    every_s: float = Field(ge=1e-6, le=86_400)
    spread_s: float = Field(default=0.0, ge=0, le=3600)
    """Each burst's requests are spread uniformly over so many seconds; 0: all in one instant."""
    first_s: float = Field(default=0.0, ge=0, le=86_400)
    """The first burst comes so many seconds into the phase."""

    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """One draw per request, also for those that fall behind the end of the window."""
        first_ns, every_ns, spread_ns = (round(s * NS) for s in (self.first_s, self.every_s, self.spread_s))
        times: list[int] = []
        for burst_ns in range(start_ns + first_ns, end_ns, max(1, every_ns)):
            times += [burst_ns + int(random.random() * spread_ns) for _ in range(self.size)]
        return sorted(at for at in times if at < end_ns)

    def mean_count(self, seconds: float) -> float:
        """Bursts that begin in the window times their size (a spread may push a few behind its end)."""
        return float(self.size * max(0, ceil((seconds - self.first_s) / self.every_s)))

    def least_factor(self) -> float:
        """A burst of one remains."""
        return 1 / self.size

    def scaled(self, factor: float) -> Self:
        """Bursts as often, of another size."""
        return self.model_copy(update={"size": grown(self.size, factor)})
