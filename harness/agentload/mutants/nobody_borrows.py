"""Shares are partitions: what one class leaves idle, nobody may use."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import each_class
from agentload.scheduler.config import ClassConfig


class NobodyBorrows(Mutant):
    """Every class keeps to its nominal share, also when the others want nothing.

    Separate concurrency numbers for interactive and batch work are the obvious first configuration, and cost
    whatever the quieter of the two does not use: isolation, paid for with throughput all night long.
    """

    row = "–"
    breaks = "most of the provider's slots stand idle while batch work waits for its small share"
    killed_by = "class-borrow"
    profile = "priority-flood"

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: each_class(config, _keeps_to_its_share))

    def half(self) -> Parts:
        return Parts(gateway_config=lambda config: each_class(config, _borrows_half))


def _keeps_to_its_share(one: ClassConfig) -> ClassConfig:
    return one.model_copy(update={"borrows": 0.0})


def _borrows_half(one: ClassConfig) -> ClassConfig:
    return one.model_copy(update={"borrows": 1.0 if one.borrows is None else one.borrows / 2})
