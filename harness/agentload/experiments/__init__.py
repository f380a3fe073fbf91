"""Published experiments, played again in virtual time: does what was measured elsewhere come out here, too?

An experiment names its source, its arms (each a load, and a gateway good or bad in one way), what it measures
in each arm's run, and the SHAPE that the source reports, as expectations with numbers. The shape, not the
digits: another machine, model or language shifts those, and leaves the order and the factor as they are.

Every expectation names two arms whose exchange must make it fail (`exchange`); a test exchanges them, so that
no expectation exists that holds whatever happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import msgspec

from agentload import mutants, profile
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.parts import Parts
from agentload.evidence.expectations import Column, Expectation, Found, Measures
from agentload.model import Profile, Run
from agentload.registry import Seam


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was published."""

    paper: str
    arxiv: str = ""
    """Identifier; empty for a paper that is not there."""
    artefact: str = ""
    """Where code and raw results are; empty when there are none."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One of the things that are compared."""

    name: str
    about: str
    profile: str
    """The load: a profile's name, or the YAML of one."""
    settings: tuple[str, ...] = ()
    """Changes to it, as in `--set KEY=VALUE`."""
    mutant: str | None = None
    """A safeguard of the gateway that is switched off, by the mutant's name."""
    parts: Parts | None = None
    """Other parts of the gateway than the reference's; instead of `mutant`."""
    timing: Timing | None = None
    """Of messages and timers; None: as every simulated run has them."""
    once: bool = False
    """Nothing that matters in it is drawn: one seed says what all would."""

    def load(self) -> Profile:
        """Raises ProfileError or UsageError."""
        if "\n" in self.profile:
            return profile.parse(self.profile, f"arm {self.name}", self.settings)
        return profile.load(profile.find(self.profile), self.settings)

    def make_parts(self) -> Parts | None:
        """What the gateway is made of; None: the reference. Raises UsageError."""
        return self.parts if self.mutant is None else mutants.parts_of(self.mutant)


class Experiment(ABC):
    """The contract. The docstring's first line says the question; the rest how it is put here."""

    source: ClassVar[Source]
    columns: ClassVar[tuple[Column, ...]]
    seeds: ClassVar[int] = 1
    """Consecutive seeds that it needs to say anything; more make it surer."""

    @abstractmethod
    def arms(self) -> tuple[Arm, ...]:
        """What is compared, in the order of the table."""

    @abstractmethod
    def measure(self, arm: Arm, run: Run) -> Measures:
        """A value for every column. Pure."""

    @abstractmethod
    def expect(self, found: Found) -> list[Expectation]:
        """The shape that the source reports, held against what was found. Pure."""


SEAM: Seam[Experiment] = Seam(__name__, Experiment)
