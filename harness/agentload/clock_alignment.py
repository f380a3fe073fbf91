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
        """An instant of ours on their clock."""
        return ours_ns + self._ahead_ns(ours_ns)

    def ours_ns(self, theirs_ns: int) -> int:
        """An instant of theirs on our clock, the drift taken out."""
        return theirs_ns - self._ahead_ns(theirs_ns - self.before.ahead_ns)

    @property
    def drift_ppm(self) -> float:
        """By how many millionths theirs runs faster than ours; 0 until compared twice."""
        if self.after is None or self.after.at_ns <= self.before.at_ns:
            return 0.0
        gained_ns = self.after.ahead_ns - self.before.ahead_ns
        return 1e6 * gained_ns / (self.after.at_ns - self.before.at_ns)

    @property
    def uncertainty_ns(self) -> int:
        """By so much a translated instant may be wrong, either way.

        Between two readings no more than at the worse of them, as long as the clocks ran evenly. Where they
        did not, nobody knows when one of them jumped: the whole jump is in doubt.
        """
        if self.after is None:
            return self.before.uncertainty_ns
        worse = max(self.before.uncertainty_ns, self.after.uncertainty_ns)
        return worse if self.steady else worse + abs(self.after.ahead_ns - self.before.ahead_ns)

    @property
    def steady(self) -> bool:
        """Whether what they ran apart is drift, or no more than the readings' own errors."""
        if self.after is None or abs(self.drift_ppm) <= STEADY_PPM:
            return True
        errors = self.before.uncertainty_ns + self.after.uncertainty_ns
        return abs(self.after.ahead_ns - self.before.ahead_ns) <= errors

    def _ahead_ns(self, ours_ns: int) -> int:
        """How far theirs is ahead at an instant of ours: along the line through both readings."""
        if self.after is None or self.after.at_ns <= self.before.at_ns:
            return self.before.ahead_ns
        gained_ns = self.after.ahead_ns - self.before.ahead_ns
        since_ns = ours_ns - self.before.at_ns
        return self.before.ahead_ns + gained_ns * since_ns // (self.after.at_ns - self.before.at_ns)
