"""A retry is not looked at again: it was let in before."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.budgets import Room
from agentload.scheduler.door import Door
from agentload.scheduler.work import Request


class BudgetNotOnRetries(Mutant):
    """Budgets are asked of first attempts only, so a client that never takes no for an answer has none.

    Retries and fallbacks that go past the limiter are the commonest leak of gateways that have one (a day's
    quota of one request was hit many times).
    """

    row = "L20"
    breaks = "an agent that retries spends without end"
    killed_by = "budget"
    profile = "runaway-agent"

    def parts(self) -> Parts:
        return Parts(admission=_Lenient)


class _FirstAttemptsOnly(Door):
    def _room(self, now_ns: int, request: Request) -> Room:
        return Room.ENOUGH if request.attempt else super()._room(now_ns, request)


class _Lenient(Admission):
    door: ClassVar[type[Door]] = _FirstAttemptsOnly
