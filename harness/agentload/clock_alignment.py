"""Two monotonic clocks: how far the provider's is ahead of ours, how sure that is, and how it drifts. Pure.

A monotonic clock counts from its own host's start, so the provider's times mean nothing here until the two
are compared: asked, its reading, answered. As in NTP (RFC 5905 §8), the quickest of several exchanges knows
best, and half its round trip bounds the error. Compared before and after a run, what the clocks drift apart
meanwhile is known as well and taken out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Exchange = tuple[int, int, int]
"""When we asked (our clock, ns), what the other clock showed, when the answer had come (ours)."""

STEADY_PPM = 500.0
"""Clocks that run apart faster have not drifted: one was set, stood still, or is another one by now. (Linux
slews a clock by so much at most, adjtimex(2).)"""


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of the two clocks."""

    at_ns: int
    """When, on our clock."""
    ahead_ns: int
    """Their clock minus ours."""
    uncertainty_ns: int
    """The truth may differ by so much, either way."""

    @property
    def maybe_one_clock(self) -> bool:
        """Whether the two may be the same clock: nothing that was seen tells them apart."""
        return abs(self.ahead_ns) <= self.uncertainty_ns


def compare(exchanges: Sequence[Exchange]) -> ClockReading:
    """What the quickest exchange says. Raises ValueError without any."""
    asked, theirs, answered = min(exchanges, key=lambda one: one[2] - one[0])
    middle = (asked + answered) // 2
    return ClockReading(at_ns=middle, ahead_ns=theirs - middle, uncertainty_ns=(answered - asked + 1) // 2)


class ClockAlignment(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's clock against ours over a run: compared before it, and after."""

    before: ClockReading
    after: ClockReading | None = None
    """None while the run lasts, and when the provider could not be asked any more."""

    def theirs_ns(self, ours_ns: int) -> int:
        """An instant of ours on their clock: along the line through both readings."""
        since_ns = ours_ns - self.before.at_ns
        return ours_ns + self.before.ahead_ns + since_ns * self._gained_ns // self._between_ns

    def ours_ns(self, theirs_ns: int) -> int:
        """An instant of theirs on our clock, the drift taken out."""
        since_ns = theirs_ns - self.before.ahead_ns - self.before.at_ns
        return self.before.at_ns + since_ns * self._between_ns // (self._between_ns + self._gained_ns)

    @property
    def drift_ppm(self) -> float:
        """By how many millionths theirs runs faster than ours; 0 until compared twice."""
        return 1e6 * self._gained_ns / self._between_ns

    @property
    def drift_told(self) -> bool:
        """Whether they ran apart by more than the readings' own errors."""
        if self.after is None:
            return False
        return abs(self._gained_ns) > self.before.uncertainty_ns + self.after.uncertainty_ns

    @property
    def steady(self) -> bool:
        """Whether what they ran apart is drift, or no more than the readings' own errors."""
        return not self.drift_told or abs(self.drift_ppm) <= STEADY_PPM

    @property
    def uncertainty_ns(self) -> int:
        """By so much a translated instant may be wrong, either way.

        Between two readings no more than at the worse of them, as long as the clocks ran evenly. Where they
        did not, nobody knows when one of them jumped: the whole jump is in doubt.
        """
        if self.after is None:
            return self.before.uncertainty_ns
        worse = max(self.before.uncertainty_ns, self.after.uncertainty_ns)
        return worse if self.steady else worse + abs(self._gained_ns)

    @property
    def _gained_ns(self) -> int:
        return 0 if self.after is None else self.after.ahead_ns - self.before.ahead_ns

    @property
    def _between_ns(self) -> int:
        return 1 if self.after is None else max(1, self.after.at_ns - self.before.at_ns)
