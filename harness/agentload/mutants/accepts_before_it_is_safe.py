"""The 202 comes first, and the row is written when there is time."""

from __future__ import annotations

from collections import deque
from typing import Any

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.model import NS
from agentload.mutants import Mutant

BEHIND_NS = NS // 2


class AcceptsBeforeItIsSafe(Mutant):
    """A job is acknowledged from memory, and its row is written half a second later.

    Answering before the write (or before its fsync) makes every latency number better, and every job lost
    that was accepted in the moments before a crash: its client has been told not to keep it.
    """

    row = "D5"
    breaks = "jobs accepted just before a crash are never heard of again"
    killed_by = "nothing-lost"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_WriteBehind)


class _WriteBehind(JobsCore):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unwritten: deque[tuple[int, JobLifecycle]] = deque()

    def _accept(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        self._out.extend(self._desk.accepted(at_ns, lifecycle))
        self._unwritten.append((at_ns + BEHIND_NS, lifecycle))

    def _tick(self, at_ns: int) -> None:
        while self._unwritten and self._unwritten[0][0] <= at_ns:
            _, lifecycle = self._unwritten.popleft()
            super()._accept(at_ns, lifecycle)
        super()._tick(at_ns)

    def next_wakeup_ns(self) -> int | None:
        due = [] if not self._unwritten else [self._unwritten[0][0] - self.wall_offset_ns]
        other = super().next_wakeup_ns()
        return min(due if other is None else [*due, other], default=None)
