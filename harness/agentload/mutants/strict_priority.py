"""The higher class first, as long as it has anything at all."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes import PRIORITY
from agentload.scheduler.policies.sfq import StartTimeFairQueue


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
        return Parts(policy=_Strict)


class _Strict(StartTimeFairQueue):
    strict_classes: ClassVar[bool] = True
