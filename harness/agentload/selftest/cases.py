"""Which runs a selftest consists of: who, under which load, with which seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from agentload import mutants, profile
from agentload.errors import UsageError
from agentload.model import Profile
from agentload.mutants import Mutant

REFERENCE = "reference"
"""The subject that has all its safeguards."""
SEEDS, QUICK_SEEDS, HALF_SEEDS = 20, 3, 5


class Scene(msgspec.Struct, frozen=True):
    """A load: a bundled profile, or one that a mutant brings along."""

    name: str
    """The profile's, and what was changed in it."""
    source: str
    """The profile's name, or its YAML."""
    settings: tuple[str, ...] = ()

    @property
    def bundled(self) -> bool:
        """A profile that users run, just as it is."""
        return not self.settings and "\n" not in self.source


class Case(msgspec.Struct, frozen=True):
    """One run."""

    subject: str
    """A mutant's name, `NAME@half`, or the reference."""
    scene: Scene
    seed: int
    quick: bool
    """With shorter phases, where the profile is one of the long ones."""


@lru_cache(maxsize=64)
def load(scene: Scene, quick: bool) -> Profile:
    """The scene's profile. Those made for one mutant are short already."""
    if "\n" in scene.source:
        return profile.parse(scene.source, scene.name, scene.settings)
    chosen = profile.load(profile.find(scene.source), scene.settings)
    return profile.quick(chosen) if quick else chosen


def scene_of(mutant: type[Mutant]) -> Scene:
    """The load that exposes it. Raises ProfileError or UsageError."""
    name = " ".join((mutants.profile_of(mutant).name, *mutant.settings))
    return Scene(name, mutant.profile, mutant.settings)


class Subjects(msgspec.Struct, frozen=True):
    """Who takes part."""

    mutants: dict[str, type[Mutant]]
    twins: dict[str, type[Mutant]]

    @classmethod
    def named(cls, names: Sequence[str]) -> Subjects:
        """Those named; all when none are. Raises UsageError for a name that there is not."""
        chosen = {name: mutants.SEAM.get(name) for name in names or mutants.SEAM.names()}
        return cls(
            {name: one for name, one in chosen.items() if not one.cosmetic},
            {name: one for name, one in chosen.items() if one.cosmetic},
        )

    def own_scenes(self) -> dict[str, Scene]:
        """Mutant → the load that exposes it."""
        return {name: scene_of(one) for name, one in self.mutants.items()}


class Program(msgspec.Struct, frozen=True):
    """Everything that is to be run."""

    subjects: Subjects
    scenes: list[Scene]
    """All of them, the bundled ones first."""
    own: dict[str, Scene]
    """Mutant → the load that exposes it."""
    seeds: list[int]
    cases: list[Case]


def program(names: Sequence[str], seeds: int | None, *, quick: bool) -> Program:
    """The runs, the telling ones first, so that what an interruption leaves is worth most.

    Each mutant under its own load for every seed, and under the bundled ones for one (`quick`: under its own
    alone); the reference under all loads for every seed, its twins under the bundled ones, shortened
    (`quick`: for one seed); weaker mutants for a few seeds (`quick`: none).
    With `names`, only those, the reference only where they are, and no twins but those named.
    """
    subjects = Subjects.named(names)
    own = subjects.own_scenes()
    bundled = [Scene(name, name) for name in profile.names()]
    everywhere = list(dict.fromkeys([*bundled, *own.values()]))
    scenes = everywhere if not names else list(dict.fromkeys(own.values())) or everywhere
    chosen = list(range(1, (seeds or (QUICK_SEEDS if quick else SEEDS)) + 1))
    twin_seeds = chosen[:1] if quick and not names else chosen
    twin_scenes = scenes if names else bundled
    cases = [Case(name, own[name], seed, quick) for seed in chosen for name in subjects.mutants]
    cases += [Case(REFERENCE, scene, seed, quick) for seed in chosen for scene in scenes]
    cases += [
        Case(name, scene, seed, quick=True)
        for seed in twin_seeds
        for name in subjects.twins
        for scene in twin_scenes
    ]
    if not quick:
        cases += _elsewhere(subjects.mutants, bundled, own)
        cases += _weaker(subjects.mutants, own, chosen[:HALF_SEEDS])
    _check_checks(scenes)
    return Program(subjects, everywhere, own, chosen, list(dict.fromkeys(cases)))


def _elsewhere(names: Iterable[str], scenes: Sequence[Scene], own: dict[str, Scene]) -> list[Case]:
    return [Case(name, s, 1, quick=True) for name in names for s in scenes if s != own[name]]


def _weaker(chosen: dict[str, type[Mutant]], own: dict[str, Scene], seeds: Sequence[int]) -> list[Case]:
    halves = [name for name, one in chosen.items() if one().half() is not None]
    return [Case(name + mutants.HALF, own[name], seed, quick=True) for seed in seeds for name in halves]


def _check_checks(scenes: Sequence[Scene]) -> None:
    """Say now, and in one line, what would otherwise fail in a worker."""
    for scene in scenes:
        if not load(scene, quick=True).checks:
            raise UsageError(f"profile '{scene.name}': names no check")
