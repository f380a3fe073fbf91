"""A floor is configured, and lent out like everything else."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import each_class
from agentload.scheduler.config import ClassConfig


class FloorsIgnored(Mutant):
    """A class keeps nothing for itself: whoever wants its idle capacity has all of it.

    A protected class then waits, for every call that it makes, until one of the borrowers' calls ends: the
    longer those are, the less its priority is worth.
    """

    row = "–"
    breaks = "a protected class that uses less than its floor waits for others' long calls to end"
    killed_by = "class-floor"
    profile = "priority-flood"

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: each_class(config, _without_floor))

    def half(self) -> Parts:
        return Parts(gateway_config=lambda config: each_class(config, _with_a_quarter))


def _without_floor(one: ClassConfig) -> ClassConfig:
    return one.model_copy(update={"min_units": 0.0, "lendable": 1.0})


def _with_a_quarter(one: ClassConfig) -> ClassConfig:
    return one.model_copy(update={"min_units": one.min_units / 4, "lendable": 1.0})
