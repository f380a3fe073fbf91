"""Published experiments: one seed brings the published shape, and every expectation of it can fail."""

from __future__ import annotations

import json
import signal
from functools import cache
from pathlib import Path

import pytest

from agentload import experiment, experiments
from agentload.errors import ExitCode, UsageError
from agentload.evidence.expectations import Column, Expectation, Found, Measures, at_most
from agentload.experiment import Options
from agentload.experiment.play import Play, found_of
from agentload.experiments import Arm, Experiment, Source
from agentload.model import Run, Status
from agentload.registry import PLUGINS_VARIABLE

LONG = ("retry-storm-mitigations",)
"""Twenty arms of two virtual minutes: a quarter of a minute of CPU on a quiet machine."""
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow, pytest.mark.timeout(600)] if name in LONG else [])
    for name in experiments.SEAM.names()
]


@cache
def played(name: str) -> Found:
    """The experiment under seed 1. (Played once: the arms of some take seconds.)"""
    play = Play(experiments.SEAM.get(name)(), [1])
    return found_of(play.arms, play.seeds, list(play.runs()))


def expected(name: str, found: Found) -> dict[str, Expectation]:
    listed = experiments.SEAM.get(name)().expect(found)
    assert len({one.name for one in listed}) == len(listed)
    return {one.name: one for one in listed}


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_brings_the_published_shape(name: str) -> None:
    found = expected(name, played(name)).values()
    assert len(found) >= 2
    assert [one for one in found if one.status is Status.FAILED] == []
    undecided = {one.name for one in found if one.status is Status.INCONCLUSIVE}
    assert all("collapses more often" in one for one in undecided)


@pytest.mark.parametrize("name", NAMES)
def test_every_expectation_fails_when_its_arms_are_exchanged(name: str) -> None:
    for one in expected(name, played(name)).values():
        if one.status is not Status.INCONCLUSIVE:
            exchanged = expected(name, played(name).exchanged(*one.exchange))
            assert exchanged[one.name].status is Status.FAILED, one.name


def test_chances_of_collapse_need_ten_seeds_and_can_fail() -> None:
    name = "retry-storm-metastable"
    alone = expected(name, played(name))["b collapses more often than a"]
    assert (alone.status, alone.measured) == (Status.INCONCLUSIVE, None)
    healthy: Measures = {"goodput_end": 100.0, "collapsed": 0.0}
    down: Measures = {"goodput_end": 0.0, "collapsed": 1.0}
    exact = {"A": healthy, "B": down, "C": healthy, "D": healthy}
    seldom = {**exact, "a": healthy, "b": healthy, "c": healthy, "d": healthy}
    ordered = Found(
        [{**seldom, "a": down, "b": down, "c": down}] * 2 + [{**seldom, "b": down}] + [seldom] * 7
    )
    found = expected(name, ordered)
    assert {one.status for one in found.values()} == {Status.PASSED}
    assert found["b collapses more often than a"].measured == 1
    for one in found.values():
        assert expected(name, ordered.exchanged(*one.exchange))[one.name].status is Status.FAILED


# --------------------------------------------------------------------------- the command


LOAD = """\
name: small
about: One tenant.
phases: [{name: only, seconds: 2}]
provider: {slots: 4}
gateway: {pools: {shared: {slots: 4}}}
tenants:
  - {name: app, arrivals: {kind: poisson, rate: 20}, workload: {kind: fixed, output_tokens: 2}}
checks: [own-answer]
"""


class _Small(Experiment):
    """Do few calls fail?"""

    source = Source(paper="nobody's", arxiv="1234.5678")
    columns = (Column(name="failed", heading="failed", unit="calls"),)
    bound = 0

    def arms(self) -> tuple[Arm, ...]:
        return tuple(
            Arm(name=name, about="it", profile=LOAD, once=name == "one") for name in ("one", "other")
        )

    def measure(self, arm: Arm, run: Run) -> Measures:
        return {"failed": float(len(run.records) if arm.name == "other" else 0)}

    def expect(self, found: Found) -> list[Expectation]:
        values = found.values("one", "failed")
        exchange = ("one", "other")
        return [at_most("one", values, 0, published="none", exchange=exchange, unit="calls")]


class _Hopeless(_Small):
    def expect(self, found: Found) -> list[Expectation]:
        values = found.values("other", "failed")
        return [at_most("other", values, 0, published="none", exchange=("one", "other"), unit="calls")]


@pytest.mark.parametrize(("small", "code"), [(_Small, ExitCode.PASSED), (_Hopeless, ExitCode.FAILED)])
def test_it_prints_a_table_leaves_json_and_exits_by_the_expectations(
    small: type[Experiment],
    code: ExitCode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(experiments.SEAM, "get", lambda _name: small)
    out = tmp_path / "it"
    assert experiment.run(Options(experiment="small", seed=3, seeds=2, out=out)) == code
    shown = capsys.readouterr().out
    for word in ("nobody's", "arXiv 1234.5678", "3 runs", "at most 0 calls", "published: none", code.name):
        assert word in shown
    facts = json.loads((out / "experiment.json").read_bytes())
    assert facts["status"] == code.name.lower()
    assert [[run["seed"] for run in arm["runs"]] for arm in facts["arms"]] == [[3], [3, 4]]
    assert len({run["digest"] for arm in facts["arms"] for run in arm["runs"]}) == 2
    assert facts["expectations"][0]["published"] == "none"


def test_the_first_interrupt_ends_it_and_keeps_what_was_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments.SEAM, "get", lambda _name: _Small)
    out, measure = tmp_path / "it", _Small.measure

    def interrupted(self: _Small, arm: Arm, run: Run) -> Measures:
        if arm.name == "other":
            signal.raise_signal(signal.SIGINT)
        return measure(self, arm, run)

    monkeypatch.setattr(_Small, "measure", interrupted)
    assert experiment.run(Options(experiment="small", seeds=2, out=out)) == ExitCode.INTERRUPTED
    facts = json.loads((out / "experiment.json").read_bytes())
    assert (facts["interrupted"], facts["status"], facts["expectations"]) == (True, "inconclusive", [])
    assert [len(arm["runs"]) for arm in facts["arms"]] == [1, 0]


MINE = '''
"""Mine."""

from agentload.evidence.expectations import Column, Shape
from agentload.experiments import Arm, Experiment, Source


class Mine(Experiment):
    """Are there more requests at twice the rate?"""

    source = Source(paper="mine")
    columns = (Column(name="sent", heading="sent"),)

    def arms(self):
        twice = ("tenants.app.arrivals.rate=40",)
        once = Arm(name="once", about="20 a second", profile=LOAD)
        return (once, Arm(name="twice", about="40 a second", profile=LOAD, settings=twice))

    def measure(self, arm, run):
        return {"sent": float(len(run.records))}

    def expect(self, found):
        shape = Shape(self.columns, found)
        shape.ratio_least("sent", "twice", "once", 1.5, "2")
        return shape.expectations


LOAD = """\\
'''


def test_one_file_from_outside_is_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plugins" / "experiments"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(MINE + LOAD + '"""\n', encoding="utf-8")
    monkeypatch.setenv(PLUGINS_VARIABLE, str(folder.parent))
    out = tmp_path / "it"
    assert experiment.run(Options(experiment="mine", seeds=3, out=out)) == ExitCode.PASSED
    facts = json.loads((out / "experiment.json").read_bytes())
    assert facts["expectations"][0]["name"] == "twice ÷ once: sent"


def test_an_unknown_experiment_is_a_wrong_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'retry-storm-metastable'"):
        experiment.run(Options(experiment="retry-storm-metastabl", out=tmp_path / "it"))
    assert not (tmp_path / "it").exists()
