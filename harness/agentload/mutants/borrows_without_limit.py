"""A borrowing limit is read, and forgotten."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import each_class
from agentload.scheduler.config import ClassConfig


class BorrowsWithoutLimit(Mutant):
    """A class borrows all that there is, whatever limit is configured.

    Kubernetes bounds both sides, lending and borrowing, because a level must also be usable as a jail: for
    work that may never take more than so much, however idle the rest is.
    """

    row = "–"
    breaks = "batch work takes all idle capacity, and the owner of it waits the longer to have it back"
    killed_by = "class-borrow"
    profile = "priority-flood"

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: each_class(config, _unlimited))

    def half(self) -> Parts:
        """A fifth more than it may."""
        return Parts(gateway_config=lambda config: each_class(config, _a_fifth_more))


def _unlimited(one: ClassConfig) -> ClassConfig:
    return one.model_copy(update={"borrows": None})


def _a_fifth_more(one: ClassConfig) -> ClassConfig:
    return one.model_copy(update={"borrows": None if one.borrows is None else 1.2 * one.borrows})
