"""Whoever has borrowed goes on borrowing."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.tenants import Ticket


class LentCapacityIsKept(Mutant):
    """What a borrower's call leaves free goes to the borrower's next call, while it has one.

    Nothing is taken from anybody, and so nothing comes back: the class that lent it is left with its floor
    for as long as the borrowers have work, which in a batch class is for ever.
    """

    row = "–"
    breaks = "a class whose demand returns never gets its share back from those that borrowed it"
    killed_by = "class-reclaim"
    profile = "priority-flood"

    def parts(self) -> Parts:
        return Parts(admission=_Keeps)

    def half(self) -> Parts:
        return Parts(admission=_KeepsEverySecond)


class _BorrowersFirst(Dispatcher):
    one_in: ClassVar[int] = 1
    picks = 0

    def next(self, now_ns: int) -> Ticket | None:
        self.picks += 1
        if self.picks % self.one_in:
            return super().next(now_ns)
        found = [self._candidate(now_ns, cls) for cls in self._order if cls.pool.slots_free]
        waiting = [ticket for ticket in found if ticket is not None]
        return min(waiting, key=_borrowers_first, default=None)


def _borrowers_first(ticket: Ticket) -> tuple[bool, float]:
    cls = ticket.service_class
    return not cls.pool.over_nominal(cls.share), cls.share.tag


class _BorrowersFirstEverySecond(_BorrowersFirst):
    one_in: ClassVar[int] = 2


class _Keeps(Admission):
    dispatcher: ClassVar[type[Dispatcher]] = _BorrowersFirst


class _KeepsEverySecond(Admission):
    dispatcher: ClassVar[type[Dispatcher]] = _BorrowersFirstEverySecond
