"""Polls the gateway's own gauges during the load, to hold against them what is seen from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import httpx

from agentload.drivers import probe
from agentload.model import Sample

Clock = Callable[[], int]


class Sampler(threading.Thread):
    """A thread that reads `GET <url>` every `interval_s` and hands each reading on.

    The gateway's own `now_ns` (CLOCK_MONOTONIC, shared by the processes of one host) dates the reading; one
    without it is dated at the middle of the call. `resident_bytes` says how much memory its process has; 0
    is no reading.
    """

    def __init__(
        self,
        url: str,
        source: str,
        t0_ns: int,
        clock: Clock,
        keep: Callable[[Sample], None],
        resident_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(name=f"sampler-{source}", daemon=True)
        self.url, self.source, self.t0_ns, self.clock, self.keep = url, source, t0_ns, clock, keep
        self.resident_bytes = resident_bytes
        self.interval_s = 0.1
        self.misses = 0
        self._stopping = threading.Event()

    def run(self) -> None:
        """Poll until stopped. A gauge that does not answer is a miss, never an error of the run."""
        with probe.client() as http:
            while not self._stopping.wait(self.interval_s):
                self._read(http)

    def stop(self) -> None:
        """Ask for the end and wait for it."""
        self._stopping.set()
        self.join(timeout=2 * probe.TIMEOUT_S)

    def _read(self, http: httpx.Client) -> None:
        before = self.clock()
        try:
            at, values = _reading(http.get(self.url).json())
        except (httpx.HTTPError, ValueError, OverflowError, RecursionError):
            self.misses += 1
            return
        at = (before + self.clock()) // 2 if at is None else at
        resident = self.resident_bytes()
        if resident:
            values["resident_bytes"] = float(resident)
        self.keep(Sample(at_ns=at - self.t0_ns, source=self.source, values=values))


def _reading(body: Any) -> tuple[int | None, dict[str, float]]:
    """When it was taken, where it says, and its numbers. Raises ValueError for what is no reading."""
    if not isinstance(body, dict):
        raise ValueError("is no mapping")
    fields = cast("dict[str, Any]", body)
    at = fields.get("now_ns")
    if "now_ns" in fields and not isinstance(at, int):
        raise ValueError("now_ns is no number")
    return at, {
        name: float(value)
        for name, value in fields.items()
        if name != "now_ns" and isinstance(value, int | float) and not isinstance(value, bool)
    }
