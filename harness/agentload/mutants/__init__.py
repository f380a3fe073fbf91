"""Who judges the judge: the reference gateway with ONE safeguard switched off, one per file.

A mutant stands for a failure that real gateways have had (`row`, in the catalogue of failures that the checks
were made from). It behaves badly and never crashes, so that a check has to measure it. `agentload selftest`
plays each one and demands that the check it names fails, and that no check fails for the reference itself or
for its cosmetic twins, which differ from it in nothing that matters.

A mutant never touches the load, the clients or the provider: it is applied to the simulated gateway and, with
`--mutant NAME`, to the real one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from agentload import profile
from agentload.drivers.simulated.parts import Parts
from agentload.errors import UsageError
from agentload.model import Profile
from agentload.registry import Seam

HALF = "@half"
"""`NAME@half` is the weaker version of a mutant."""


class Mutant(ABC):
    """The contract. The docstring says which real failure it stands for."""

    row: ClassVar[str] = ""
    """Which failure: F1 … F23 queueing and fairness, L1 … L29 limits, R1 … R15 refusals and retries, D1 … D13
    disconnects, deadlines and durability; – for one that the catalogue does not list."""
    breaks: ClassVar[str] = ""
    """What goes wrong for its users, in one sentence."""
    killed_by: ClassVar[str] = ""
    """The check that must fail."""
    profile: ClassVar[str] = ""
    """The load that exposes it: a profile's name, or the YAML of one made for it."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Changes to that profile, as in `--set KEY=VALUE`."""
    cosmetic: ClassVar[bool] = False
    """True for a twin of the reference, which every check of every profile must pass."""

    def __init_subclass__(cls) -> None:
        if cls.__name__.startswith("_"):
            return
        missing = [name for name in ("row", "breaks", "killed_by", "profile") if not getattr(cls, name)]
        if missing and not cls.cosmetic:
            raise TypeError(f"a mutant must say its {', '.join(missing)}")

    @abstractmethod
    def parts(self) -> Parts:
        """The gateway's parts: the reference's, but for the safeguard that is off."""

    def half(self) -> Parts | None:
        """The same at half strength (one leak in ten, an overshoot of a fifth), to see how sensitive the
        check is; None where there is no half of it."""
        return None


SEAM: Seam[Mutant] = Seam(__name__, Mutant)


def parts_of(name: str) -> Parts:
    """The parts of a mutant, by its name or `NAME@half`. Raises UsageError."""
    mutant = SEAM.get(name.removesuffix(HALF))()
    if not name.endswith(HALF):
        return mutant.parts()
    weaker = mutant.half()
    if weaker is None:
        raise UsageError(f"the mutant '{name.removesuffix(HALF)}' has no half strength")
    return weaker


def profile_of(mutant: type[Mutant]) -> Profile:
    """The profile that exposes it. Raises ProfileError or UsageError."""
    if "\n" in mutant.profile:
        return profile.parse(mutant.profile, f"{mutant.__module__}.profile", mutant.settings)
    return profile.load(profile.find(mutant.profile), mutant.settings)
