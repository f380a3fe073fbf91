"""Turns instead of work: a long call costs its tenant as much as a short one."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import Ticket
from agentload.scheduler.work import UNIT


class EveryCallCostsOne(Mutant):
    """Fair in requests, unfair in tokens: who sends ten times longer calls is served ten times the work.

    The unit of fairness in several schedulers that are called fair (dispatch attempts, tasks "of equal cost",
    `pass += 1 / weight`). A noisy-neighbour test alone never notices.
    """

    row = "F3"
    breaks = "a tenant with ten times longer calls gets ten times the work of its neighbours"
    killed_by = "weighted-share"
    profile = "long-jobs"

    def parts(self) -> Parts:
        return Parts(policy=_Turns)

    def half(self) -> Parts:
        return Parts(policy=_RootsOfWork)


class _Turns(StartTimeFairQueue):
    exponent: ClassVar[float] = 0.0

    def started(self, ticket: Ticket) -> None:
        super().started(ticket)
        charged = round(UNIT * (ticket.work / UNIT) ** self.exponent)
        super().charge(ticket, charged - ticket.work)

    def charge(self, ticket: Ticket, work: int) -> None:
        """What it really cost does not matter."""


class _RootsOfWork(_Turns):
    exponent: ClassVar[float] = 0.5
