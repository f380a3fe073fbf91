"""How many calls may be in flight at the provider, learnt from what it refuses.

No limit until it refuses. Then TCP's ways, in calls: a refusal narrows the window, at most once per round
trip and by half the share of the calls it hit (RFC 8257, data center TCP: one refusal among a hundred calls
is noise and not congestion). Each call that is accepted while the window binds widens it again, by one up to
where the narrowing left it (slow start, RFC 5681), and by one per round trip from there on. Wider than all
pools together it limits nothing, and is forgotten.

A refusal thus costs everybody a part of the rate, shared out by the dispatcher as ever. Only an instant that
the provider names stops everybody, and so do refusals with nothing accepted between them. What follows starts
with one call more than is in service, so that the end of an outage is not a stampede.
"""

from __future__ import annotations

import math

UNLIMITED = math.inf
FIRST_PAUSE_NS = 62_500_000
"""The first pause after two refusals in a row without a named instant; every further one doubles it."""
LONGEST_PAUSE_NS = 1_000_000_000


class CongestionWindow:
    """Calls in flight and the limit on them."""

    __slots__ = (
        "_accepted",
        "_barren",
        "_narrowed_ns",
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
        """Below it the window doubles per round trip, above it grows by one."""
        self._narrowed_ns = -1
        """When it was last narrowed: calls sent before that belong to the round trip that was judged then."""
        self._accepted = 0
        """Calls of the present round trip that were accepted."""
        self._refused = 0
        """And that were refused."""
        self._barren = 0
        """Narrowings since anything was accepted."""
        self._restarts = False
        """After a pause: begin anew from what is in service then."""

    def full(self) -> bool:
        """Whether another call would be too many."""
        if self._restarts:
            self._restarts = False
            self.limit = self.in_flight + 1.0
        return self.in_flight + 1 > self.limit

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
        if sent_ns < self._narrowed_ns or self.limit == UNLIMITED:
            return False
        self._accepted += 1
        self._barren = 0
        if self.limit < self._threshold:
            # Half full is enough: what one acceptance opened is still on its way when the next one comes.
            if 2 * self.in_flight >= self.limit:
                self.limit += 1
        elif self.in_flight + 1 > self.limit:
            self.limit += 1 / self.limit
        if self.limit >= self._widest:
            self.limit = self._threshold = UNLIMITED
        return True

    def refused(self, now_ns: int, sent_ns: int, *, named: bool) -> int:
        """The provider refused a call that was sent then and is still counted. Returns for how long nothing
        should follow. `named`: the provider itself says for how long, and 0 is returned."""
        self._restarts = self._restarts or named
        if sent_ns < self._narrowed_ns:
            return 0
        self._refused += 1
        self._narrow(now_ns)
        if named:
            return 0
        return self._back_off()

    def _narrow(self, now_ns: int) -> None:
        """Learn from a round trip in which something was accepted. One in which nothing was says that the
        provider is away, and nothing about how much it takes."""
        if self.limit == UNLIMITED:
            # It may be an outage. If it is not, doubling from here soon meets the next refusal.
            self.limit = max(1.0, self.in_flight)
        elif self._accepted:
            share = self._refused / (self._accepted + self._refused)
            busy = min(self.limit, self.in_flight)
            self._threshold = self.limit = max(1.0, busy * (1 - share / 2))
        self._barren += 1
        self._accepted = self._refused = 0
        self._narrowed_ns = now_ns

    def _back_off(self) -> int:
        if self._barren < 2:
            return 0
        self._restarts = True
        return min(LONGEST_PAUSE_NS, FIRST_PAUSE_NS << min(self._barren - 2, 10))
