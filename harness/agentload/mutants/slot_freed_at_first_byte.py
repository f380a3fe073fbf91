"""The handler has returned, so the permit is released; the stream goes on."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import Settle
from agentload.mutants import Mutant
from agentload.mutants._scenes import STREAMS


class SlotFreedAtFirstByte(Mutant):
    """A stream holds its slot only until its headers are out.

    Where a handler returns a body that is produced later, whatever is released when it returns is released
    too early: the cap on concurrent calls then holds for everything but what takes long.
    """

    row = "L8"
    breaks = "many more streams run at the provider than the cap allows"
    killed_by = "concurrency-cap"
    profile = STREAMS

    def parts(self) -> Parts:
        return Parts(lifecycle=_ReleasesEarly, watched=False)

    def half(self) -> Parts:
        return Parts(lifecycle=_ReleasesOneInFive, watched=False)


class _ReleasesEarly(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def handle(self, now_ns: int, event: object) -> Step:
        step = super().handle(now_ns, event)
        if self._held and self.state is State.STREAMING and self._id % self.one_in == 0:
            self._held = False
            step.append(Settle(self._id, *self._tokens(), True))
        return step


class _ReleasesOneInFive(_ReleasesEarly):
    one_in: ClassVar[int] = 5
