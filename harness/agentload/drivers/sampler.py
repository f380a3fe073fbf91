"""Reads the gateway's own gauges during the load, to hold against them what is seen from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agentload.drivers.gauges import BOUNDS, Gauge
from agentload.errors import UnreachableError
from agentload.evidence.unread_gauges import unread
from agentload.model import GaugeReadings, Sample

Clock = Callable[[], int]
PART_OF_A_PROCESSOR = 0.1
"""A page that is long is read less often: this process must not become late for its sake."""


class Sampler(threading.Thread):
    """A thread that reads a gauge every `interval_s` and hands each reading on.

    One that does not say when it was so is dated at the middle of the call. `resident_bytes` says how much
    memory the gateway has; 0 is no reading.
    """

    def __init__(
        self,
        gauge: Gauge,
        source: str,
        t0_ns: int,
        clock: Clock,
        keep: Callable[[Sample], None],
        resident_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(name=f"sampler-{source}", daemon=True)
        self.gauge, self.source, self.t0_ns, self.clock, self.keep = gauge, source, t0_ns, clock, keep
        self.resident_bytes = resident_bytes
        self.interval_s = 0.1
        self.readings = GaugeReadings(where=gauge.where)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Read until stopped. A gauge that does not answer is a miss, never an error of the run."""
        used_s = 0.0
        while not self._stopping.wait(max(self.interval_s, used_s / PART_OF_A_PROCESSOR)):
            began_s = time.thread_time()
            self.read()
            used_s = time.thread_time() - began_s
        self.gauge.close()

    def stop(self) -> None:
        """Ask for the end and wait for it."""
        self._stopping.set()
        self.join(timeout=2 * BOUNDS.seconds)

    @property
    def trouble(self) -> str | None:
        """What the user should know of it, once it has stopped."""
        return unread(self.readings, self.gauge.names or ("",))

    def read(self) -> None:
        """Once."""
        before_ns = self.clock()
        self.readings.reads += 1
        try:
            values, at_ns = self.gauge.read()
        except (UnreachableError, ValueError, OverflowError) as error:
            _count(self.readings.failed, _why(error, self.gauge.where))
            values, at_ns = {}, None
        else:
            for name in self.gauge.names:
                if name not in values:
                    _count(self.readings.lacking, name)
        at_ns = (before_ns + self.clock()) // 2 if at_ns is None else at_ns
        resident = self.resident_bytes()
        if resident:
            values["resident_bytes"] = float(resident)
        if values:
            self.keep(Sample(at_ns=at_ns - self.t0_ns, source=self.source, values=values))


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1


def _why(error: Exception, where: str) -> str:
    """Few and short: never what the page said."""
    if isinstance(error, UnreachableError):
        return str(error).partition(f"{where}: ")[2] or str(error)
    return "is no page of metrics"
