"""The client gave up in the queue; its turn comes all the same."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import ClientLeft
from agentload.mutants import Mutant
from agentload.mutants._scenes import IMPATIENCE


class GhostsAreServed(Mutant):
    """A queued request of a client that has gone is sent to the provider when its turn comes.

    40,000 stale entries were worked off in one incident, with a goodput of zero that never recovered.
    """

    row = "D2"
    breaks = "capacity is spent on answers that nobody waits for"
    killed_by = "no-ghosts"
    profile = IMPATIENCE

    def parts(self) -> Parts:
        return Parts(lifecycle=_Deaf)

    def half(self) -> Parts:
        return Parts(lifecycle=_DeafOneInTen)


class _Deaf(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def handle(self, now_ns: int, event: object) -> Step:
        waiting = self.state is State.WAITING and self._id % self.one_in == 0
        return [] if waiting and isinstance(event, ClientLeft) else super().handle(now_ns, event)


class _DeafOneInTen(_Deaf):
    one_in: ClassVar[int] = 10
