"""How many calls may be in flight at the provider, learnt from what it refuses.

No limit until it refuses. Then TCP's ways, in calls. Refusals of up to a tenth of the calls are noise, which
a budget of second calls makes good. More of them narrow the window, at most once per round trip, by half
their share (RFC 8257, data center TCP) or half a call. Calls that are accepted while the window binds widen
it again: by one each up to where it was narrowed (slow start, RFC 5681), from there on by a quarter of a call
or 2 % per round trip, and twice as fast after each call that it gained. Wider than all pools together it
limits nothing.

A refusal thus costs everybody a part of the rate, shared out by the dispatcher as ever. Only an instant that
the provider names stops everybody, and so do refusals of most of what is in flight with nothing accepted
between them. What follows starts with one call more than is in service, so that the end of an outage is not a
stampede.
"""

from __future__ import annotations

import math

UNLIMITED = math.inf
FIRST_PAUSE_NS = 62_500_000
"""The first pause after two refusals in a row without a named instant; every further one doubles it."""
LONGEST_PAUSE_NS = 1_000_000_000
NOISE = 0.1
"""Refusals per accepted call that do not count."""
LEAST_CUT = 0.5
"""Calls by which a refusal narrows the window at least."""
LEAST_GAIN = 0.25
"""Calls by which it widens in a round trip, after a refusal; or this part of it, where that is more:"""
GAIN = 0.02


class CongestionWindow:
    """Calls in flight and the limit on them."""

    __slots__ = (
        "_accepted",
        "_barren",
        "_binds",
        "_gain",
        "_gained",
        "_narrowed_ns",
        "_peak",
        "_refused",
        "_restarts",
        "_threshold",
        "_widest",
        "in_flight",
        "limit",
    )

    def __init__(self, widest: int) -> None:
        """`widest`: calls that can be in flight at all."""
        self._widest = widest
        self.in_flight = 0
        self.limit = UNLIMITED
        """Calls that may be in flight; fractions of one are saved up."""
        self._threshold = UNLIMITED
        """Below it the window doubles per round trip, above it it grows by `_gain`."""
        self._gain = LEAST_GAIN
        """Calls per round trip."""
        self._gained = 0.0
        """Calls since the gain last changed."""
        self._narrowed_ns = -1
        """When it was last narrowed: calls sent before that belong to the round trip that was judged then."""
        self._accepted = 0.0
        """Calls that were accepted since it was narrowed, older ones counting less."""
        self._refused = 0.0
        """And that were refused."""
        self._peak = 0
        """The most that were in flight lately when one was accepted."""
        self._barren = 0
        """Refusals in a row of most of what was in flight."""
        self._binds = False
        """Whether the last call that was wanted was one too many."""
        self._restarts = False
        """After a pause: begin anew from what is in service then."""

    def full(self) -> bool:
        """Whether another call would be too many."""
        if self._restarts:
            self._restarts = False
            self.limit = self.in_flight + 1.0
        self._binds = self.in_flight + 1 > self.limit
        return self._binds

    def lag_ns(self, call_ns: float) -> int:
        """How much later than at full width everything will be done, with calls that take `call_ns`: what
        doubling from the present width to the full one (or to where it grows slowly) costs."""
        if self.limit == UNLIMITED:
            return 0
        width = self.in_flight + 1.0 if self._restarts else self.limit
        target = min(self._threshold, self._widest)
        return 0 if width >= target else round(call_ns * (math.log2(target / width) - 1 + width / target))

    def accepted(self, sent_ns: int) -> bool:
        """The provider began to answer a call that was sent then. True when the window was limited, and may
        be wider now."""
        if sent_ns < self._narrowed_ns:
            return False
        self._count()
        if self.limit == UNLIMITED:
            return False
        if self.limit < self._threshold:
            # Half full is enough: what one acceptance opened is still on its way when the next one comes.
            if self._binds or 2 * self.in_flight >= self.limit:
                self.limit += 1
        elif self._binds or self.in_flight + 1 > self.limit:
            self._widen(self._gain / self.limit)
        if self.limit >= self._widest:
            self.limit = self._threshold = UNLIMITED
        return True

    def _count(self) -> None:
        self._barren = 0
        self._accepted += 1
        if self.in_flight > self._peak:
            self._peak = self.in_flight
        if self._accepted > 2 * self._peak + 8:
            # What was two round trips ago says half as much.
            self._accepted /= 2
            self._refused /= 2
            self._peak = max(self.in_flight, self._peak // 2)

    def refused(self, now_ns: int, sent_ns: int, *, named: bool) -> int:
        """The provider refused a call that was sent then and is still counted. Returns for how long nothing
        should follow. `named`: the provider itself says for how long, and 0 is returned."""
        if named:
            self._restarts = True
            self.limit = min(self.limit, max(1.0, self.in_flight, self._peak))
        if sent_ns < self._narrowed_ns:
            return 0
        self._refused += 1
        if self._refused <= NOISE * self._accepted:
            if named:
                self._narrowed_ns = now_ns  # what is answered during the pause was sent before it
            return 0
        self._narrow(now_ns)
        return 0 if named else self._back_off()

    def _widen(self, gained: float) -> None:
        self.limit += gained
        self._gained += gained
        if self._gained >= 1:
            self._gained = 0.0
            self._gain = min(2 * self._gain, self.limit)

    def _narrow(self, now_ns: int) -> None:
        """Learn from a round trip. Where nothing of it was accepted the provider may be away, which says
        nothing about how much it takes: the window is narrowed then, and can widen again as fast as ever."""
        share = self._refused / (self._accepted + self.in_flight)
        away = self._accepted == 0 and share > 0.5
        self._barren = self._barren + 1 if away else 0
        busy = min(self.limit, max(self.in_flight, self._peak))
        if self.limit == UNLIMITED:
            # It may be an outage. If it is not, doubling from here soon meets the next refusal.
            self.limit = max(1.0, busy)
        elif not away:
            self.limit = max(1.0, busy - max(LEAST_CUT, busy * share / 2))
            if self._accepted:
                self._threshold = self.limit
                self._gain, self._gained = max(LEAST_GAIN, GAIN * self.limit), 0.0
        self._accepted = self._refused = 0.0
        self._peak = 0
        self._narrowed_ns = now_ns

    def _back_off(self) -> int:
        if not self._barren:
            return 0
        self._restarts = True
        return min(LONGEST_PAUSE_NS, FIRST_PAUSE_NS << min(self._barren - 1, 10))
