"""A job has ended as soon as its result is known, and the result is written when there is time."""

from __future__ import annotations

from collections import deque
from typing import Any

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs import news
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.store import APPLIED, Change, Update
from agentload.model import NS
from agentload.mutants import Mutant

BEHIND_NS = NS


class AcknowledgesBeforeTheResult(Mutant):
    """Work is acknowledged when it is done, and its result follows into the store a second later.

    A gateway that acknowledges before the result is safe forgets what it has told: after a crash the job
    that its client saw completed is under way again, or gone with its result.
    """

    row = "D5"
    breaks = "a job that was told as completed is run again after a crash, and ends otherwise"
    killed_by = "nothing-lost"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_AcknowledgesFirst)


class _AcknowledgesFirst(JobsCore):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unwritten: deque[tuple[int, Change]] = deque()

    def _carry_out(self, at_ns: int, lifecycle: JobLifecycle, effects: news.Effects) -> None:
        ends = [one for one in effects if isinstance(one, news.Write) and _ends(one.change)]
        super()._carry_out(at_ns, lifecycle, [one for one in effects if one not in ends])
        for write in ends:
            assert isinstance(write, news.Write)
            self._unwritten.append((at_ns + BEHIND_NS, write.change))
            self._tell(at_ns, lifecycle, news.Saved(APPLIED))

    def _tick(self, at_ns: int) -> None:
        while self._unwritten and self._unwritten[0][0] <= at_ns:
            self._batches.add(None, self._unwritten.popleft()[1])
        super()._tick(at_ns)

    def next_wakeup_ns(self) -> int | None:
        due = [] if not self._unwritten else [self._unwritten[0][0] - self.wall_offset_ns]
        other = super().next_wakeup_ns()
        return min(due if other is None else [*due, other], default=None)


def _ends(change: Change) -> bool:
    return isinstance(change, Update) and change.job.state.ended
