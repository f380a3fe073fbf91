"""Whether the model is slow: how long calls take lately, against calls of their size normally."""

from __future__ import annotations

from agentload.scheduler.estimate import MovingMean

_LATELY = 20
"""Calls that `ratio` looks back on."""
_NORMALLY = 1_000
"""Calls over which the normal time is learnt."""
_SLOW = 1.5
"""From this ratio on a call is learnt from at a tenth of the weight: a slow hour must not become normal."""
_LEAST = 20
"""Calls before which nothing is normal."""


class Pace:
    """A straight line through (tokens, time in service), by exponentially weighted least squares."""

    def __init__(self) -> None:
        self.count = 0
        """Calls seen."""
        self._x = self._y = self._xx = self._xy = 0.0
        self._actual, self._expected = MovingMean(_LATELY), MovingMean(_LATELY)

    @property
    def known(self) -> bool:
        """Whether enough has been seen to say what is normal."""
        return self.count >= _LEAST

    @property
    def ratio(self) -> float:
        """Time in service of the last calls ÷ what calls of their size normally take; 1 while unknown."""
        if not self.known or self._expected.mean <= 0:
            return 1.0
        return self._actual.mean / self._expected.mean

    def expected_ns(self, tokens: float) -> float:
        """What a call that produces so many tokens normally takes; 0 while nothing is known."""
        spread = self._xx - self._x * self._x
        slope = max(0.0, (self._xy - self._x * self._y) / spread) if spread > 1e-9 * self._xx else 0.0
        # Never less than half of the mean: extrapolated to nothing, the line would call any short call slow.
        return max(self._y + slope * (tokens - self._x), self._y / 2)

    def add(self, tokens: int, service_ns: int) -> None:
        """A call was answered whole."""
        expected_ns = self.expected_ns(tokens) if self.count else float(service_ns)
        self._actual.add(service_ns)
        self._expected.add(expected_ns)
        self.count += 1
        part = 1 / min(self.count, _NORMALLY)
        if self.ratio > _SLOW:
            part /= 10
        self._x += (tokens - self._x) * part
        self._y += (service_ns - self._y) * part
        self._xx += (tokens * tokens - self._xx) * part
        self._xy += (tokens * service_ns - self._xy) * part
