"""A free slot is noticed at the next look, four times a second."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.tenants import Ticket

EVERY_NS = 250_000_000


class PollsForFreeSlots(Mutant):
    """Waiting requests sleep and look again, instead of being woken when something ends.

    `sleep(0.25)` in a loop: each slot stands empty for half of that between two calls, and whoever wakes
    first takes it.
    """

    row = "F22"
    breaks = "slots stay empty for an eighth of a second between two calls"
    killed_by = "work-conserving"
    profile = "long-jobs"

    def parts(self) -> Parts:
        return Parts(admission=_Sleeps)

    def half(self) -> Parts:
        return Parts(admission=_SleepsLess)


class _Looks(Dispatcher):
    every_ns: ClassVar[int] = EVERY_NS
    looked_ns = 0

    def next(self, now_ns: int) -> Ticket | None:
        if now_ns // self.every_ns > self.looked_ns // self.every_ns:
            self.looked_ns = now_ns
        return super().next(now_ns) if now_ns == self.looked_ns else None


class _Sleeps(Admission):
    dispatcher: ClassVar[type[Dispatcher]] = _Looks
    every_ns: ClassVar[int] = EVERY_NS

    def next_wakeup_ns(self) -> int | None:
        wakeup_ns = super().next_wakeup_ns()
        if not any(cls.queue.waiting for cls in self._classes.values()):
            return wakeup_ns
        look_ns = ((self._advanced_ns or 0) // self.every_ns + 1) * self.every_ns
        return look_ns if wakeup_ns is None else min(wakeup_ns, look_ns)


class _LooksMore(_Looks):
    every_ns: ClassVar[int] = EVERY_NS // 5


class _SleepsLess(_Sleeps):
    dispatcher: ClassVar[type[Dispatcher]] = _LooksMore
    every_ns: ClassVar[int] = EVERY_NS // 5
