"""The higher class first, as long as it has anything at all."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes import PRIORITY
from agentload.scheduler.admission import Admission
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.tenants import Ticket


class StrictPriority(Mutant):
    """Classes are served in their order, without the share that a lower one is due.

    With the high class at 95 % of capacity the low one got 56 of 960 seat seconds in simulation; above
    capacity it gets nothing, for as long as that lasts.
    """

    row = "F11"
    breaks = "while the high class has work waiting, the low class gets nothing"
    killed_by = "no-starvation"
    profile = PRIORITY

    def parts(self) -> Parts:
        return Parts(admission=_Strict)


class _InOrder(Dispatcher):
    def next(self, now_ns: int) -> Ticket | None:
        for cls in self._order:
            ticket = self._candidate(now_ns, cls) if cls.pool.slots_free else None
            if ticket is not None:
                return ticket
        return None


class _Strict(Admission):
    dispatcher: ClassVar[type[Dispatcher]] = _InOrder
