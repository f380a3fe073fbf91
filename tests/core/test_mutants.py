"""The mutants' contract: each names a check, a row and a load; twins change nothing that matters."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from agentload import checks, mutants, simulate
from agentload import profile as profiles
from agentload.drivers.simulated.parts import Parts
from agentload.errors import UsageError
from agentload.model import Profile
from agentload.mutants import Mutant
from agentload.selftest.cases import Scene, scene_of

ALL = {name: mutants.SEAM.get(name) for name in mutants.SEAM.names()}
MUTANTS = {name: one for name, one in ALL.items() if not one.cosmetic}
TWINS = sorted(name for name, one in ALL.items() if one.cosmetic)
REQUIRED = (
    "F1 F3 F4 F5 F7 F8 F11 F14 F15 F17 F19 F20 F21 F22 F23 L1 L3 L4 L8 L13 L20 L21 L24 L26"
    " R1 R2 R3 R4 R7 R8 R9 R10 R12 R14 D1 D2 D3 D5 D6 D7 D8 D9 D13"
)


def changed(parts: Parts) -> list[str]:
    reference = Parts()
    return [f.name for f in fields(Parts) if getattr(parts, f.name) != getattr(reference, f.name)]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_says_what_it_breaks_and_who_must_notice(name: str) -> None:
    mutant = MUTANTS[name]
    profile = mutants.profile_of(mutant)
    assert re.fullmatch(r"[FLRD]\d+|–", mutant.row)
    assert mutant.killed_by in checks.SEAM.names()
    assert mutant.killed_by in {spec.kind for spec in profile.checks}
    assert len((inspect.getdoc(mutant) or "").split()) > 8, "say which real failure it stands for"
    assert not mutant.breaks.endswith(".")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_the_gateway_and_nothing_else(name: str) -> None:
    for parts in (MUTANTS[name]().parts(), MUTANTS[name]().half()):
        if parts is not None:
            beside_the_gateway = {"provider", "provider_config", "behaviour", "shell"}
            assert changed(parts)
            assert not beside_the_gateway & set(changed(parts))


@pytest.mark.parametrize("name", ALL)
def test_a_mutant_is_one_small_file(name: str) -> None:
    path = Path(inspect.getfile(ALL[name]))
    assert path.stem.replace("_", "-") == name
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 90


def test_loads_of_one_name_are_one_load() -> None:
    """Runs are told apart by the load's name: what a mutant brings along is not named like another one."""
    loads = [scene_of(one) for one in MUTANTS.values()] + [Scene(name, name) for name in profiles.names()]
    assert len({load.name for load in loads}) == len(set(loads))


def test_every_failure_that_was_asked_for_has_its_mutant() -> None:
    assert set(REQUIRED.split()) <= {one.row for one in MUTANTS.values()}
    assert {"article-choose-next", "article-retry-after"} <= set(MUTANTS)


def test_there_are_three_twins_at_least() -> None:
    assert len(TWINS) >= 3


@pytest.fixture(scope="module")
def brief() -> Profile:
    """A second of overload in which every way through admission is gone."""
    return mutants.profile_of(MUTANTS["deadline-excludes-waiting"])


def test_a_twin_with_the_same_decisions_has_the_same_digest(brief: Profile) -> None:
    reference = simulate.simulate(brief, 1).meta["digest"]
    for twin in ("twin-linear-scan", "twin-other-order", "twin-other-words"):
        assert simulate.simulate(brief, 1, parts=mutants.parts_of(twin)).meta["digest"] == reference
    broken = simulate.simulate(brief, 1, parts=mutants.parts_of("deadline-excludes-waiting"))
    assert broken.meta["digest"] != reference


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("one-shared-qeue", "did you mean 'one-shared-queue'?"),
        ("one-bound-for-all@half", "has no half strength"),
    ],
)
def test_a_wrong_name_is_one_line_with_a_mend(name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        mutants.parts_of(name)
    assert said in str(caught.value)


def test_half_of_a_mutant_is_had_by_name() -> None:
    assert mutants.parts_of("one-shared-queue@half").policy is not mutants.parts_of("one-shared-queue").policy


def test_a_mutant_that_does_not_say_what_must_notice_is_refused() -> None:
    with pytest.raises(TypeError, match="killed_by"):

        class Silent(Mutant):
            row, breaks, profile = "F1", "something", "steady"
