"""Checked when it comes, charged when it has ended."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._door_scenes import BUDGET_RACE
from agentload.scheduler.admission import Admission
from agentload.scheduler.budgets import Room
from agentload.scheduler.door import Door
from agentload.scheduler.work import Request


class BudgetCheckedNotReserved(Mutant):
    """Only what has ended counts as spent, so all that come before the first has ended have the whole budget.

    Check, then add later: 99 dollars were spent of 30 that way.
    """

    row = "L19"
    breaks = "a burst spends many times what was left"
    killed_by = "budget"
    profile = BUDGET_RACE

    def parts(self) -> Parts:
        return Parts(admission=_Racy)


class _LooksAtTheSpentOnly(Door):
    def _room(self, now_ns: int, request: Request) -> Room:
        room = super()._room(now_ns, request)
        return Room.ENOUGH if room is Room.RESERVED else room


class _Racy(Admission):
    door: ClassVar[type[Door]] = _LooksAtTheSpentOnly
