"""`agentload compare-policies`: the numbers, the table, the file, and what the comparison shows."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from agentload import compare_policies as comparing
from agentload import profile, simulate
from agentload.compare_policies import Comparison, Options, as_json, names_in, select
from agentload.compare_policies.yardsticks import Yardsticks, measure, plain
from agentload.errors import ExitCode, UsageError
from agentload.evidence.synthetic import RunBuilder
from agentload.evidence.synthetic import profile as synthetic
from agentload.model import Outcome
from agentload.scheduler.policies import SEAM

SHORT = ("phases.warm-up.seconds=1", "phases.small.seconds=8", "phases.heavy.seconds=8")


@cache
def found(name: str, policy: str, settings: Sequence[str] = ()) -> Yardsticks:
    chosen = profile.load(profile.find(name), settings)
    return comparing.measured(chosen, policy, chosen.seed).found


def small_jobs(policy: str) -> Yardsticks:
    return found("weighted-fair", policy, SHORT)


# ---------------------------------------------------------------- what it shows


@pytest.mark.parametrize(("terminal", "said"), [(True, "  0 of 2 simulated"), (False, "")])
def test_how_far_it_is_is_told_to_a_person_only(terminal: bool, said: str) -> None:
    aside = Console(file=io.StringIO(), force_terminal=terminal, no_color=True, color_system=None)
    comparing.tell(aside, Comparison(profile.load(profile.find("herd")), ["sfq", "fifo"], [1]))
    assert isinstance(aside.file, io.StringIO)
    assert aside.file.getvalue().rstrip("\n") == said


@pytest.mark.parametrize("policy", ["sfq", "drr"])
def test_fair_policies_give_everybody_its_share_and_keep_the_gap_small(policy: str) -> None:
    yardsticks = small_jobs(policy)
    assert (yardsticks.jain or 0) > 0.98
    assert (yardsticks.min_share or 0) > 0.9
    assert (yardsticks.service_gap or math.inf) < (yardsticks.gap_bound or 0)
    assert yardsticks.refused == 0


@pytest.mark.parametrize("policy", ["fifo", "tenant-cap", "round-robin", "priority", "sjf", "article-drr"])
def test_the_others_do_not(policy: str) -> None:
    yardsticks = small_jobs(policy)
    assert (yardsticks.min_share or 0) < 0.75
    assert (yardsticks.service_gap or 0) > (yardsticks.gap_bound or math.inf)


def test_the_articles_choose_next_starves_two_of_three() -> None:
    assert small_jobs("article-drr").min_share == pytest.approx(0, abs=0.05)


def test_sjf_has_the_best_median_and_no_fairness() -> None:
    sjf, sfq = small_jobs("sjf"), small_jobs("sfq")
    assert (sjf.p50_ms or math.inf) < 0.8 * (sfq.p50_ms or 0)
    assert sjf.queue_age_s > 2 * sfq.queue_age_s


def test_without_admission_nothing_waits_in_the_gateway_and_the_provider_refuses() -> None:
    none, sfq = small_jobs("none"), small_jobs("sfq")
    assert none.queue_age_s < 0.01
    assert none.service_gap is None
    assert none.refused > sfq.refused == 0
    assert (none.p99_ms or 0) > 3 * (sfq.p99_ms or math.inf), "who is refused comes back when told, and later"


# ---------------------------------------------------------------- the numbers


def run_of(answers: int, refusals: int) -> Yardsticks:
    build = RunBuilder(synthetic(tenants={"a": 1.0}, phases={"load": 10.0}))
    for k in range(answers):
        build.answered("a", k * 10, wait_ms=100, service_ms=200, input_tokens=10, output_tokens=20)
    for k in range(refusals):
        build.ended("a", k * 10, Outcome.REJECTED, after_ms=5, status=429)
    return measure(build.run())


def test_the_numbers_of_a_run_that_a_person_can_check() -> None:
    yardsticks = run_of(30, 10)
    assert (yardsticks.goodput_per_s, yardsticks.tokens_per_s) == (3.0, 90.0)
    assert (yardsticks.p50_ms, yardsticks.p99_ms) == (300.0, None), "40 are too few for a p99"
    assert (yardsticks.refused, yardsticks.requests) == (0.25, 40)
    assert yardsticks.queue_age_s == pytest.approx(0.1)
    assert (yardsticks.jain, yardsticks.min_share, yardsticks.service_gap) == (None, None, None)


def test_what_was_never_answered_is_infinitely_late_and_null_in_json() -> None:
    yardsticks = run_of(10, 30)
    assert yardsticks.p50_ms == math.inf
    written = plain(yardsticks)
    assert (written["p50_ms"], written["never"]) == (None, ["p50_ms"])


# ---------------------------------------------------------------- the command


def test_one_table_and_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(
        profile="weighted-fair", policies=("sfq", "none"), seeds=2, settings=SHORT, out=tmp_path / "out"
    )
    assert comparing.run(options) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("sfq ", "none "))] == [
        "sfq",
        "none",
    ]
    content = json.loads((tmp_path / "out" / "policies.json").read_bytes())
    assert content["seeds"] == [1, 2]
    assert [(one["policy"], one["seed"]) for one in content["runs"]] == [
        ("sfq", 1),
        ("sfq", 2),
        ("none", 1),
        ("none", 2),
    ]
    chosen = profile.load(profile.find("weighted-fair"), SHORT)
    again = simulate.simulate(chosen, 2, policy="sfq")
    assert content["runs"][1]["digest"] == again.meta["digest"], "any run can be had again by its seed"


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert comparing.run(Options(profile="weighted-fair", policies=("fifo",), settings=SHORT)) == 0
    assert "min" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_all_policies_are_compared_by_default_the_profiles_own_first() -> None:
    assert select((), "sfq") == ["sfq", *(name for name in SEAM.names() if name != "sfq")]
    assert select(("fifo", "sfq", "fifo"), "drr") == ["fifo", "sfq"]


def test_a_policy_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="did you mean 'sjf'"):
        select(("sjff",), "sfq")
    with pytest.raises(UsageError, match="single commas"):
        names_in("sfq,,fifo")


def test_what_was_done_before_an_interruption_is_shown() -> None:
    chosen = profile.load(profile.find("weighted-fair"), SHORT)
    comparison = Comparison(chosen, ["sfq", "fifo", "none"], [1])
    kept = []
    for result in comparison.results():
        kept.append(result)
        comparison.stop()
    assert [result.policy for result in kept] == ["sfq"]
    assert len(json.loads(as_json(chosen, [1], kept))["runs"]) == 1
