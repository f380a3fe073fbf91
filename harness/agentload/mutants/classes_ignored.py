"""Service classes are labels: whoever came first goes first."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.tenants import Ticket


class ClassesIgnored(Mutant):
    """Among the classes, the one whose next request has waited longest goes first.

    A scheduler with priorities that lets everybody pass while any backend is healthy does this: a class is
    then served by how many requests it sends, and by how long they take.
    """

    row = "F12"
    breaks = "a class with short calls and a large share is served no more than its number of requests buys"
    killed_by = "class-reclaim"
    profile = "priority-flood"

    def parts(self) -> Parts:
        return Parts(admission=_Ignores)


class _OldestFirst(Dispatcher):
    def next(self, now_ns: int) -> Ticket | None:
        found = [self._candidate(now_ns, cls) for cls in self._order if cls.pool.slots_free]
        waiting = [ticket for ticket in found if ticket is not None]
        return min(waiting, key=lambda ticket: ticket.queued_ns, default=None)


class _Ignores(Admission):
    dispatcher: ClassVar[type[Dispatcher]] = _OldestFirst
