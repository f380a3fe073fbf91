"""When a refused caller may come back: the truth, but not the same truth for everybody.

Official SDKs wait exactly as long as Retry-After says, without jitter. Telling every refused caller when the
*next* place is free sends all of them back at once: in simulation 6 % were ever served, at 44 attempts each.
So the k-th refused caller is told when the k-th place is free, as if it stood in a queue (a virtual one: it
holds no memory here); that served all of them, at 1.9 attempts each.
"""

from __future__ import annotations

import math
from random import Random

from agentload.scheduler.config import RetryConfig

NS = 1_000_000_000
_JITTER = 0.2
"""A promise is stretched by up to this share of itself. Never shortened: coming early means coming twice."""
_BEYOND_CAP = 0.25
"""Promises that would exceed max_seconds are spread over this last share of it."""


class VirtualQueue:
    """Hands out the instants at which places become free, one per refused caller."""

    __slots__ = ("_promised_until_ns",)

    def __init__(self) -> None:
        self._promised_until_ns = 0

    @property
    def until_ns(self) -> int:
        """The last place promised; 0 when none ever was."""
        return self._promised_until_ns

    def take(self, free_from_ns: int, interval_ns: int, horizon_ns: int) -> int:
        """The instant of the next place that nobody has been promised.

        Places come free every `interval_ns`, the next one an interval after `free_from_ns`. Nothing is
        promised beyond `horizon_ns`, so that callers who never return do not push it out without bound.
        """
        due_ns = max(self._promised_until_ns, free_from_ns) + interval_ns
        self._promised_until_ns = min(due_ns, horizon_ns)
        return due_ns

    def peek(self, free_from_ns: int, interval_ns: int) -> int:
        """When the next place is free, whoever has been promised it."""
        return free_from_ns + interval_ns


class RetryAdvice:
    """Turns the instant at which a caller could be served into the seconds it is told to wait."""

    def __init__(self, config: RetryConfig, random: Random) -> None:
        self._config = config
        self._random = random

    @property
    def tickets(self) -> bool:
        """Whether refused callers are told different instants."""
        return self._config.spread == "tickets"

    def horizon_ns(self, now_ns: int) -> int:
        """No promise reaches beyond this instant."""
        return now_ns + round(self._config.max_seconds * NS)

    def place_ns(self, queue: VirtualQueue, now_ns: int, free_from_ns: int, interval_ns: int) -> int:
        """When the caller refused now may have a place, by the configured way of telling."""
        start_ns = max(now_ns, free_from_ns)
        if self.tickets:
            return queue.take(start_ns, interval_ns, self.horizon_ns(now_ns))
        return queue.peek(start_ns, interval_ns)

    def seconds(self, now_ns: int, due_ns: int, attempt: int) -> int:
        """Retry-After for a place that is free at `due_ns`: whole seconds, rounded up, in 1..max_seconds.

        Callers that keep coming back (attempt > 0) wait at least base * 2**attempt, whatever is free.
        """
        cap = self._config.max_seconds
        wait_s = max((due_ns - now_ns) / NS, self._floor_s(attempt))
        if self.tickets and self._config.jitter == "full":
            stretched = wait_s * (1 + _JITTER * self._random.random())
            wait_s = stretched if wait_s < cap else cap * (1 - _BEYOND_CAP * self._random.random())
        return max(1, min(math.ceil(wait_s), int(cap)))

    def _floor_s(self, attempt: int) -> float:
        if attempt <= 0:
            return 0.0
        # 2**30 exceeds every sensible cap; more would only overflow.
        return min(self._config.max_seconds, self._config.base_seconds * 2.0 ** min(attempt, 30))
