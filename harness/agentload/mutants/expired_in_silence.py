"""What expires in the queue is dropped, and nobody is told."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.mutants import Mutant
from agentload.scheduler.events import Expired


class ExpiredInSilence(Mutant):
    """The queue forgets what is too late; the connection stays open until its client gives up by itself.

    Load shedders that drop without an answer: the client learns nothing, holds its connection and its own
    place until its timeout, and tries again then.
    """

    row = "D3"
    breaks = "clients wait for their own timeout, although it was known long before that nothing would come"
    killed_by = "nested-timeouts"
    profile = "deadlines"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Silent, watched=False)

    def half(self) -> Parts:
        return Parts(lifecycle=_SilentToOneInTen, watched=False)


class _Silent(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def handle(self, now_ns: int, event: object) -> Step:
        forgotten = self.state is State.WAITING and self._id % self.one_in == 0
        return [] if forgotten and isinstance(event, Expired) else super().handle(now_ns, event)


class _SilentToOneInTen(_Silent):
    one_in: ClassVar[int] = 10
