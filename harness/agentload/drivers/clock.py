"""The run's clock: nanoseconds since the run began, on this host's monotonic clock."""

from __future__ import annotations

import time

import gevent

from agentload.drivers.ticker import Ticker


class RunClock:
    """Counts from a time zero that may still lie ahead (then it reads negative)."""

    __slots__ = ("t0_ns",)

    def __init__(self, t0_ns: int) -> None:
        self.t0_ns = t0_ns
        """Time zero on `time.monotonic_ns()` of this host."""

    def now_ns(self) -> int:
        """Since time zero."""
        return time.monotonic_ns() - self.t0_ns

    def sleep_until(self, due_ns: int) -> None:
        """Let other greenlets run until then; up to 1 ms late."""
        while (left_ns := due_ns - self.now_ns()) > 0:
            gevent.sleep(left_ns / 1e9)

    def tick_until(self, ticker: Ticker, due_ns: int) -> None:
        """The same, as exactly as the ticker can."""
        ticker.sleep_until(due_ns + self.t0_ns)
