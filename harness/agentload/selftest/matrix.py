"""What the runs say about the checks: kills, margins, suspects, survivors, false alarms. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agentload.model import Status
from agentload.mutants import HALF
from agentload.selftest.cases import REFERENCE, Program
from agentload.selftest.exceptions import EXCEPTIONS
from agentload.selftest.play import Judged, Played


class Spread(msgspec.Struct, frozen=True):
    """A distribution in three numbers; infinite ones are None, as in report.json."""

    least: float | None
    median: float | None
    most: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        ordered = sorted(values)
        return cls(*(_finite(ordered[i]) for i in (0, len(ordered) // 2, -1)))


class Margin(msgspec.Struct, frozen=True, kw_only=True):
    """How far apart the reference and the mutant are, by the check that must tell them apart."""

    unit: str
    bound: float | None
    reference: Spread
    mutant_unit: str
    """A check may measure another thing when it fails: then the two cannot be subtracted."""
    mutant: Spread
    gap: float | None
    """From the reference's worst to the mutant's best, in `unit`; negative when they overlap, None when it is
    infinite or the units differ."""
    separated: bool | None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant."""

    name: str
    row: str
    breaks: str
    scene: str
    named: str
    """The check that must fail."""
    seeds: int
    """Played under its own load."""
    kills: int
    """Of these, the named check failed in so many."""
    killed: bool
    """In all of them, or as often as its exception demands."""
    survived: list[int]
    """The seeds in which it did not fail."""
    errors: list[str]
    by_check: dict[str, int]
    """Check → in how many of its own load's runs it failed."""
    elsewhere: dict[str, list[str]]
    """Check → the other loads under which it failed, with one seed each."""
    margin: Margin | None
    """None when one of the two measured nothing."""
    half_seeds: int
    half_kills: int
    exception: str = ""

    @property
    def noticed(self) -> bool:
        """Whether any check failed anywhere."""
        return bool(self.by_check or self.elsewhere)


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A check that did not pass for the reference, or for a twin."""

    subjects: list[str]
    scene: str
    check: str
    status: Status
    seeds: list[int]
    because: str
    """Of the first."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The content of selftest.json."""

    schema: int = 1
    quick: bool
    interrupted: bool
    planned: int
    played: int
    cpu_s: float
    passed: bool
    seeds: list[int]
    mutants: list[Found]
    false_alarms: list[Alarm]
    """Failed for the reference or a twin: there must be none."""
    undecided: list[Alarm]
    """Inconclusive for the reference or a twin: says nothing, which is a pity."""
    errors: list[str]
    """Of the reference and its twins."""
    suspects: list[str]
    """Checks that are nowhere the only one to notice a mutant."""
    blind: list[str]
    """Checks that no mutant made fail."""
    survivors: list[str]
    """Mutants that no check notices: a bug in the harness."""
    twins: list[str]
    checks: list[str]
    """All checks of all loads: the columns of the matrix."""


def find(
    program: Program, played: Sequence[Played], *, quick: bool, interrupted: bool, partial: bool = False
) -> Findings:
    """Everything that the runs say. `partial`: not all mutants took part, so that nothing follows about the
    checks."""
    index = _Index(played)
    mutants = [_found(name, program, index) for name in program.subjects.mutants]
    clean = [one for one in played if one.subject in {REFERENCE, *program.subjects.twins}]
    alarms = _alarms(clean, Status.FAILED)
    errors = [f"{one.subject}, {one.scene}, seed {one.seed}: {one.error}" for one in clean if one.error]
    failed = Counter(check for one in mutants for check in {*one.by_check, *one.elsewhere})
    checks = sorted({judged.check for one in played for judged in one.checks})
    return Findings(
        quick=quick,
        interrupted=interrupted,
        planned=len(program.cases),
        played=len(played),
        cpu_s=round(sum(one.cpu_s for one in played), 1),
        passed=not (alarms or errors or interrupted) and all(one.killed for one in mutants),
        seeds=program.seeds,
        mutants=mutants,
        false_alarms=alarms,
        undecided=_alarms(clean, Status.INCONCLUSIVE),
        errors=errors,
        suspects=[] if partial else [c for c in checks if failed[c] and c not in _alone(played)],
        blind=[] if partial else [check for check in checks if not failed[check]],
        survivors=[one.name for one in mutants if one.seeds and not one.noticed],
        twins=list(program.subjects.twins),
        checks=checks,
    )


class _Index:
    """Runs by subject and scene."""

    def __init__(self, played: Iterable[Played]) -> None:
        self._runs: dict[tuple[str, str], list[Played]] = {}
        for one in sorted(played, key=lambda one: one.seed):
            self._runs.setdefault((one.subject, one.scene), []).append(one)
        self.scenes = list(dict.fromkeys(scene for _, scene in self._runs))

    def of(self, subject: str, scene: str) -> list[Played]:
        return self._runs.get((subject, scene), [])


def _found(name: str, program: Program, index: _Index) -> Found:
    mutant, scene = program.subjects.mutants[name], program.own[name].name
    runs = index.of(name, scene)
    survived = [one.seed for one in runs if mutant.killed_by not in _failed(one)]
    elsewhere: dict[str, list[str]] = {}
    for other in index.scenes:
        for one in index.of(name, other) if other != scene else ():
            for check in _failed(one):
                elsewhere.setdefault(check, []).append(other)
    halves = index.of(name + HALF, scene)
    kills, allowed = len(runs) - len(survived), EXCEPTIONS.get(name)
    return Found(
        name=name,
        row=mutant.row,
        breaks=mutant.breaks,
        scene=scene,
        named=mutant.killed_by,
        seeds=len(runs),
        kills=kills,
        killed=bool(runs) and kills >= (1.0 if allowed is None else allowed.share) * len(runs),
        survived=survived,
        errors=sorted({one.error for one in runs if one.error}),
        by_check=dict(sorted(Counter(check for one in runs for check in _failed(one)).items())),
        elsewhere=elsewhere,
        margin=_margin(mutant.killed_by, runs, index.of(REFERENCE, scene)),
        half_seeds=len(halves),
        half_kills=sum(mutant.killed_by in _failed(one) for one in halves),
        exception="" if allowed is None else allowed.because,
    )


def _failed(one: Played) -> set[str]:
    return {judged.check for judged in one.checks if judged.status is Status.FAILED}


def _alone(played: Iterable[Played]) -> set[str]:
    """Checks that were, in some run of a mutant, the only one to fail."""
    sole = [_failed(one) for one in played if one.subject != REFERENCE]
    return {check for failed in sole if len(failed) == 1 for check in failed}


def _alarms(clean: Iterable[Played], status: Status) -> list[Alarm]:
    found: dict[tuple[str, str], list[tuple[Played, Judged]]] = {}
    for one in sorted(clean, key=lambda one: (one.seed, one.subject != REFERENCE, one.subject)):
        for judged in one.checks:
            if judged.status is status:
                found.setdefault((one.scene, judged.check), []).append((one, judged))
    return [
        Alarm(
            subjects=list(dict.fromkeys(one.subject for one, _ in said)),
            scene=scene,
            check=check,
            status=status,
            seeds=sorted({one.seed for one, _ in said}),
            because=said[0][1].because,
        )
        for (scene, check), said in found.items()
    ]


# --------------------------------------------------------------------------- margins


def _margin(check: str, runs: Sequence[Played], reference: Sequence[Played]) -> Margin | None:
    """By the place in the profile at which the mutant fails most often."""
    places = _places(check, runs)
    if not places:
        return None
    place = max(places, key=lambda place: (_failures(runs, place), -place))
    theirs, ours = _values(runs, place), _values(reference, place)
    if not theirs or not ours:
        return None
    (unit, sound), (other, mutant) = _commonest(ours), _commonest(theirs)
    upwards = _median(mutant) >= _median(sound)
    gap = min(mutant) - max(sound) if upwards else min(sound) - max(mutant)
    bounds = [one.checks[place].bound for one in reference if place < len(one.checks)]
    return Margin(
        unit=unit,
        bound=next((bound for bound in bounds if bound is not None), None),
        reference=Spread.of(sound),
        mutant_unit=other,
        mutant=Spread.of(mutant),
        gap=None if math.isnan(gap) or unit != other else _finite(gap),
        separated=gap > 0 if unit == other else None,
    )


def _commonest(by_unit: Mapping[str, list[float]]) -> tuple[str, list[float]]:
    return max(by_unit.items(), key=lambda item: len(item[1]))


def _places(check: str, runs: Sequence[Played]) -> list[int]:
    whole = next((one.checks for one in runs if one.checks), [])
    return [place for place, judged in enumerate(whole) if judged.check == check]


def _failures(runs: Sequence[Played], place: int) -> int:
    return sum(bool(one.checks) and one.checks[place].status is Status.FAILED for one in runs)


def _values(runs: Sequence[Played], place: int) -> Mapping[str, list[float]]:
    """Unit → what was measured in it. Only decided verdicts count."""
    values: dict[str, list[float]] = {}
    for one in runs:
        judged: Judged | None = one.checks[place] if place < len(one.checks) else None
        if judged is not None and judged.status is not Status.INCONCLUSIVE and judged.value is not None:
            values.setdefault(judged.unit, []).append(judged.value)
    return values


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


# --------------------------------------------------------------------------- the golden matrix


def golden(findings: Findings, played: Iterable[Played]) -> dict[str, Any]:
    """Which checks failed for which mutant, with the first seed: what a test compares."""
    first = {one.name: one for one in findings.mutants}
    rows: dict[str, Any] = {}
    for one in played:
        mutant = first.get(one.subject)
        if mutant is not None and one.seed == 1 and one.scene == mutant.scene:
            rows[one.subject] = {
                "row": mutant.row,
                "scene": mutant.scene,
                "named": mutant.named,
                "failed": sorted(_failed(one)),
            }
    return {"seed": 1, "quick": findings.quick, "mutants": dict(sorted(rows.items()))}
