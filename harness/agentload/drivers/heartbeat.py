"""Whether a worker itself was held up: a heartbeat that finds stalls, and what the kernel says of our share.

Pure but for two reads of /proc: the loop that beats lives in the worker.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from agentload.model import Stall

BEAT_NS = 10_000_000
"""10 ms between beats."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STALL_NS = 50_000_000
"""A beat later than this is a stall: what was measured meanwhile tells of this machine, not of the target."""


class StallFinder:
    """Told of every beat, says which stretch was a stall."""

    def __init__(self, now_ns: int, where: str, beat_ns: int = BEAT_NS, stall_ns: int = STALL_NS) -> None:
        self.where = where
        self.beat_ns = beat_ns
        self.stall_ns = stall_ns
        self._last_ns = now_ns
        self.worst_ns = 0
        """The longest delay of a beat so far."""

    def beat(self, now_ns: int) -> Stall | None:
        """A beat has come. The stall begins where the beat should have come."""
        expected_ns = self._last_ns + self.beat_ns
        self._last_ns = now_ns
        late_ns = now_ns - expected_ns
        self.worst_ns = max(self.worst_ns, late_ns)
        return (
            Stall(start_ns=expected_ns, end_ns=now_ns, where=self.where) if late_ns > self.stall_ns else None
        )


class ProcessorUse:
    """Shares of the time since it was made: on a processor, and waiting for one."""

    def __init__(self) -> None:
        self._wall_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()
        self._waited_ns = run_queue_wait_ns()

    def cpu_s(self) -> float:
        """Processor time used since then."""
        return (time.process_time_ns() - self._cpu_ns) / 1e9

    def shares(self) -> tuple[float, float]:
        """(CPU share, run-queue wait share), each at least 0; more than 1 CPU only with several threads."""
        elapsed_ns = max(1, time.monotonic_ns() - self._wall_ns)
        cpu = (time.process_time_ns() - self._cpu_ns) / elapsed_ns
        waited = (run_queue_wait_ns() - self._waited_ns) / elapsed_ns
        return max(0.0, cpu), max(0.0, waited)


def run_queue_wait_ns() -> int:
    """How long the main thread has been ready to run without a processor; 0 where the kernel does not say.

    Second field of /proc/self/schedstat (Documentation/scheduler/sched-stats.rst).
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    return 0


def resident_bytes(process: int | str = "self") -> int:
    """Memory of a process (by its id) now; 0 where the kernel does not say, or there is no such process."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_BYTES
    return 0
