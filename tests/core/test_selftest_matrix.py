"""What a selftest concludes from its runs: kills, margins, false alarms, suspects, survivors."""

from __future__ import annotations

from typing import Any

import pytest

from agentload.model import Status
from agentload.mutants import SEAM
from agentload.selftest import exceptions, matrix, page, show
from agentload.selftest.cases import REFERENCE, Program, Scene, Subjects, program
from agentload.selftest.matrix import Findings, Spread
from agentload.selftest.play import Judged, Played

NAME, TWIN = "one-shared-queue", "twin-linear-scan"
OWN, OTHER = Scene("noisy-neighbor", "noisy-neighbor"), Scene("steady", "steady")
PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


def ran(subject: str, seed: int = 1, scene: Scene = OWN, **checks: Any) -> Played:
    """`victim_latency=(FAILED, 12.0)`; a status alone means that nothing was measured."""
    judged = [
        Judged(
            check=name.replace("_", "-"),
            status=said[0] if isinstance(said, tuple) else said,
            measured=said[1] if isinstance(said, tuple) and said[1] != float("inf") else None,
            censored=isinstance(said, tuple) and said[1] == float("inf"),
            bound=2.0,
            unit="×",
            because="so it is",
        )
        for name, said in checks.items()
    ]
    return Played(subject=subject, scene=scene.name, seed=seed, quick=True, checks=judged)


def findings(*played: Played, interrupted: bool = False) -> Findings:
    subjects = Subjects({NAME: SEAM.get(NAME)}, {TWIN: SEAM.get(TWIN)})
    planned = Program(subjects, [OWN, OTHER], {NAME: OWN}, [1, 2], [])
    return matrix.find(planned, played, quick=True, interrupted=interrupted)


def clean(seed: int, value: float = 1.1) -> Played:
    return ran(REFERENCE, seed, victim_latency=(PASSED, value), no_starvation=PASSED)


def killed(seed: int, value: float = 12.0) -> Played:
    return ran(NAME, seed, victim_latency=(FAILED, value), no_starvation=PASSED)


def test_a_mutant_killed_in_all_seeds_and_a_clean_reference_pass() -> None:
    found = findings(clean(1, 1.05), clean(2, 1.13), killed(1, 11.0), killed(2, 14.0))
    assert found.passed
    [one] = found.mutants
    assert (one.kills, one.seeds, one.survived, one.by_check) == (2, 2, [], {"victim-latency": 2})
    assert one.margin is not None
    assert (one.margin.reference, one.margin.mutant) == (Spread(1.05, 1.13, 1.13), Spread(11.0, 14.0, 14.0))
    assert (one.margin.gap, one.margin.separated, one.margin.bound) == (9.87, True, 2.0)


def test_one_seed_that_survives_fails_the_selftest() -> None:
    found = findings(clean(1), killed(1), ran(NAME, 2, victim_latency=(PASSED, 1.9)))
    assert not found.passed
    assert (found.mutants[0].kills, found.mutants[0].survived) == (1, [2])


def test_inconclusive_is_no_kill() -> None:
    found = findings(clean(1), ran(NAME, 1, victim_latency=INCONCLUSIVE))
    assert not found.passed
    assert found.survivors == [NAME]


def test_another_check_that_fails_is_no_kill_but_the_mutant_did_not_survive_unnoticed() -> None:
    found = findings(clean(1), ran(NAME, 1, victim_latency=(PASSED, 1.5), no_starvation=FAILED))
    assert not found.passed
    assert (found.survivors, found.mutants[0].by_check) == ([], {"no-starvation": 1})


def test_a_mutant_that_was_never_played_is_not_killed() -> None:
    assert not findings(clean(1)).passed


def test_an_exception_lowers_what_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = exceptions.Allowed(0.5, "the margin is 0.1 ×")
    monkeypatch.setattr(matrix, "EXCEPTIONS", {NAME: allowed})
    found = findings(clean(1), killed(1), ran(NAME, 2, victim_latency=(PASSED, 1.9)))
    assert found.passed
    assert found.mutants[0].exception == "the margin is 0.1 ×"


@pytest.mark.parametrize("subject", [REFERENCE, TWIN])
def test_a_failed_check_of_the_reference_or_a_twin_is_a_false_alarm(subject: str) -> None:
    found = findings(clean(1), killed(1), ran(subject, 2, OTHER, no_starvation=FAILED))
    assert not found.passed
    [alarm] = found.false_alarms
    assert (alarm.subjects, alarm.scene, alarm.seeds) == ([subject], "steady", [2])
    assert alarm.check == "no-starvation"


def test_an_undecided_reference_is_told_and_does_not_fail() -> None:
    found = findings(clean(1), killed(1), ran(REFERENCE, 2, OTHER, no_starvation=INCONCLUSIVE))
    assert found.passed
    assert [one.check for one in found.undecided] == ["no-starvation"]


def test_a_reference_that_crashes_fails_the_selftest() -> None:
    crashed = Played(subject=REFERENCE, scene="steady", seed=1, quick=True, error="ValueError: no")
    found = findings(clean(1), killed(1), crashed)
    assert not found.passed
    assert found.errors == ["reference, steady, seed 1: ValueError: no"]


def test_an_interrupted_selftest_has_not_passed() -> None:
    assert not findings(clean(1), killed(1), interrupted=True).passed


def test_an_infinite_measurement_counts_as_the_largest() -> None:
    found = findings(clean(1), killed(1, float("inf")))
    margin = found.mutants[0].margin
    assert margin is not None
    assert (margin.mutant.most, margin.gap, margin.separated) == (None, None, True)


def test_distributions_that_overlap_are_not_separated() -> None:
    found = findings(clean(1, 1.0), clean(2, 5.0), killed(1, 4.0), killed(2, 6.0))
    margin = found.mutants[0].margin
    assert margin is not None
    assert (margin.separated, margin.gap) == (False, -1.0)


def test_a_check_that_never_fails_alone_is_suspect_and_one_that_never_fails_is_blind() -> None:
    both = ran(NAME, 1, victim_latency=(FAILED, 9.0), no_starvation=FAILED)
    alone = ran(NAME, 2, victim_latency=(FAILED, 9.0), no_starvation=PASSED)
    reference = ran(REFERENCE, 1, victim_latency=PASSED, no_starvation=PASSED, own_answer=PASSED)
    found = findings(reference, both, alone)
    assert (found.suspects, found.blind) == (["no-starvation"], ["own-answer"])


def test_kills_under_other_loads_are_told_apart() -> None:
    found = findings(clean(1), killed(1), ran(NAME, 1, OTHER, no_starvation=FAILED))
    [one] = found.mutants
    assert one.elsewhere == {"no-starvation": ["steady"]}
    assert show.mark(one, "victim-latency") == show.NAMED
    assert show.mark(one, "no-starvation") == show.ELSEWHERE


def test_the_golden_matrix_holds_the_first_seed_of_each_mutant() -> None:
    runs = [clean(1), killed(1), ran(NAME, 2, no_starvation=FAILED), ran(NAME, 1, OTHER, own_answer=FAILED)]
    rows = matrix.golden(findings(*runs), runs)["mutants"]
    assert rows == {
        NAME: {
            "row": "F1",
            "scene": "noisy-neighbor",
            "named": "victim-latency",
            "failed": ["victim-latency"],
        }
    }


def test_the_page_shows_names_and_loads_nothing() -> None:
    alarm = ran(TWIN, 1, OTHER, no_starvation=FAILED)
    html = page.render(findings(clean(1), killed(1), alarm), ["selftest", "--quick"]).decode()
    for shown in (NAME, "victim-latency", "no-starvation", TWIN, "agentload selftest --quick"):
        assert shown in html
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "")


# --------------------------------------------------------------------------- which runs there are


def test_a_quick_program_has_few_seeds_no_halves_and_no_run_twice() -> None:
    planned = program((), None, quick=True)
    assert planned.seeds == [1, 2, 3]
    assert len(planned.cases) == len(set(planned.cases))
    assert not any("@half" in case.subject for case in planned.cases)
    assert all(case.quick for case in planned.cases)


def test_a_full_program_plays_every_mutant_twenty_times_and_twins_under_every_profile() -> None:
    planned = program((), None, quick=False)
    mine = [c for c in planned.cases if c.subject == NAME and c.scene == OWN and not c.quick]
    assert [case.seed for case in mine] == list(range(1, 21))
    played = {(c.scene, c.seed) for c in planned.cases if c.subject == TWIN}
    bundled = {scene for scene in planned.scenes if scene.bundled}
    assert played == {(scene, seed) for scene in bundled for seed in range(1, 21)}
    assert {c.scene for c in planned.cases if c.subject == REFERENCE} == set(planned.scenes)
    assert any(c.subject == f"{NAME}@half" for c in planned.cases)


def test_a_named_program_is_of_those_named() -> None:
    planned = program((NAME, TWIN), 2, quick=True)
    assert {case.subject for case in planned.cases} == {NAME, TWIN, REFERENCE}
    assert {c.scene for c in planned.cases if c.subject == REFERENCE} == {OWN}
