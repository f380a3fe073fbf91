"""What a call held is given back only when it went well."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.gateway.protocol import Record, Settle, Withdraw
from agentload.model import Outcome
from agentload.mutants import Mutant
from agentload.mutants._scenes import IMPATIENCE


class FailedCallsKeepTheirSlot(Mutant):
    """A reservation leaks whenever a call fails, times out or is left by its client.

    Found again and again (aborted streams that count for ever, limits that shrink until a restart): the
    release stands where only success passes.
    """

    row = "L4"
    breaks = "every aborted call makes the gateway's capacity smaller for good"
    killed_by = "capacity-leak"
    profile = IMPATIENCE

    def parts(self) -> Parts:
        return Parts(lifecycle=_Leaks, watched=False)

    def half(self) -> Parts:
        return Parts(lifecycle=_LeaksOneInTen, watched=False)


class _Leaks(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def handle(self, now_ns: int, event: object) -> Step:
        step = super().handle(now_ns, event)
        if self._id % self.one_in == 0 and any(map(_ended_badly, step)):
            return [one for one in step if not isinstance(one, Settle | Withdraw)]
        return step


class _LeaksOneInTen(_Leaks):
    one_in: ClassVar[int] = 10


def _ended_badly(one: object) -> bool:
    return isinstance(one, Record) and one.dispatched and one.outcome is not Outcome.ANSWERED
