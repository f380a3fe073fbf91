"""Whose step goes before admission next, and whose before the gate. PURE.

Chat steps ask in the order of their lanes, as many of a lane at once as may; tool steps in the gate's order.
A lane is looked at again when something of it has moved, or its pause is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentload.gateway.jobs.gate import ToolGate
from agentload.gateway.jobs.lanes import Lane, Lanes
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import Job
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.registry import Registry
from agentload.scheduler.timers import Timers

_IN_LANE = (Phase.STORING, Phase.WAITING, Phase.ASKING)


class Turns:
    """All jobs that wait. All times are Unix times in nanoseconds."""

    def __init__(self, registry: Registry, lanes: Lanes, gate: ToolGate, ahead: int) -> None:
        """`ahead`: chat steps of one lane that may be before admission at once."""
        self._registry = registry
        self._lanes = lanes
        self._gate = gate
        self._ahead = ahead
        self._pauses = Timers()
        self._dirty: dict[int, Lane] = {}

    def next_ns(self) -> int | None:
        """When a pause ends."""
        return self._pauses.next_ns()

    def wake(self, at_ns: int) -> None:
        """Look again at the lanes whose pause is over."""
        while (number := self._pauses.pop_due(at_ns)) is not None:
            lane = self._lanes.numbered(number)
            if lane is not None:
                self._dirty[lane.number] = lane

    def join(self, job: Job) -> None:
        """A job that is new in this process."""
        self._lanes.join(self._lane(job), job.number)

    def ready(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        """It may go, unless its time has not come: then its timer brings it back."""
        job = lifecycle.job
        if job.not_before_ns > at_ns:
            return
        if lifecycle.asks_admission:
            lane = self._lane(job)
            lane.ready(job.number)
            self._dirty[lane.number] = lane
        else:
            self._gate.ready(job.tenant, job.number)

    def pause(self, job: Job, until_ns: int) -> None:
        """Nothing of the job's lane asks admission before then."""
        lane = self._lane(job)
        lane.paused_until_ns = max(lane.paused_until_ns, until_ns)
        self._pauses.set(lane.number, lane.paused_until_ns)

    def moved(self, lifecycle: JobLifecycle, before: Phase, after: Phase) -> None:
        """Keep the job's lane true to its phase."""
        job = lifecycle.job
        lane = self._lane(job)
        self._dirty[lane.number] = lane
        if before in _IN_LANE and after not in _IN_LANE:
            self._lanes.leave(lane, job.number)
        elif after in _IN_LANE and before not in _IN_LANE:
            self._lanes.join(lane, job.number)
        if Phase.ASKING in (before, after) and lifecycle.asks_admission:
            lane.asking += 1 if after is Phase.ASKING else -1

    def chats(self, at_ns: int) -> Iterator[JobLifecycle]:
        """Jobs whose chat step may ask admission now; each has moved before the next is asked for."""
        while self._dirty:
            lane = self._dirty.pop(next(iter(self._dirty)))
            while (number := lane.pop(at_ns, self._ahead)) is not None:
                lifecycle = self._registry.by_number.get(number)
                if lifecycle is not None and _may_go(at_ns, lifecycle):
                    yield lifecycle
            if not lane.members and not lane.asking and at_ns >= lane.paused_until_ns:
                self._lanes.forget(lane)

    def tools(self, at_ns: int) -> Iterator[JobLifecycle]:
        """Jobs whose tool may be called now, each with a slot of the gate."""
        while (granted := self._gate.next()) is not None:
            tenant, number = granted
            lifecycle = self._registry.by_number.get(number)
            if lifecycle is not None and _may_go(at_ns, lifecycle):
                yield lifecycle
            else:
                self._gate.free(tenant)  # it has ended, or has a slot already

    def _lane(self, job: Job) -> Lane:
        return self._lanes.of(job.service_class, job.tenant)


def _may_go(at_ns: int, lifecycle: JobLifecycle) -> bool:
    return lifecycle.phase is Phase.WAITING and lifecycle.job.not_before_ns <= at_ns
