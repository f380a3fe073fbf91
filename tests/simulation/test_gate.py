"""The gate over simulated runs: what counts, what is repeated, what CI reads; real runs and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console

from agentload import calibration, gate, plan, profile, rundir
from agentload import run as live
from agentload.calibration.knee import Carried, EndedBy
from agentload.conclusion import Conclusion, conclude
from agentload.errors import AgentloadError, ExitCode, InconclusiveError, UnreachableError, UsageError
from agentload.gate import Gate, Options
from agentload.model import Profile, Run
from agentload.rundir import RunDir
from agentload.simulate import simulate

QUIET = Console(quiet=True)


def recorded(chosen: Profile, policy: str | None, stall: bool) -> Run:
    run = simulate(chosen, 1, policy=policy)
    if stall:
        run.health.trustworthy = False
        run.health.reasons = ["the test says so"]
    return run


class Simulations:
    """Runs profiles in virtual time instead of live, writing the same folders."""

    def __init__(
        self,
        policies: dict[str, str] | None = None,
        stalls: Iterator[bool] = iter(()),
        target: dict[str, Any] | None = None,
    ) -> None:
        self.policies, self.stalls, self.target = policies or {}, stalls, target or {}

    def __call__(self, options: live.Options, console: Console) -> Conclusion:
        chosen = profile.quick(profile.load(profile.find(options.profile)))
        run = recorded(chosen, self.policies.get(options.profile), next(self.stalls, False))
        folder = RunDir.create(chosen.name, datetime.now(), out=options.out)
        manifest = rundir.manifest_of(
            chosen, plan.draw(chosen, 1), "simulated", datetime.now(), target=self.target
        )
        folder.save(run, manifest)
        return conclude(folder, console, inconclusive_passes=options.inconclusive_passes)


def played(folder: Path, run_one: Simulations, *names: str, passes: bool = False) -> Gate:
    each = live.Options(profile="", inconclusive_passes=passes)
    one = Gate(Options(profiles=names, each=each), folder, QUIET, run_one)
    for name in names:
        one.play(name)
    return one


def test_a_gate_is_as_good_as_its_worst_run(tmp_path: Path) -> None:
    one = played(tmp_path, Simulations({"noisy-neighbor": "fifo"}), "steady", "noisy-neighbor")
    assert one.exit_code() == ExitCode.FAILED
    facts = json.loads((tmp_path / "gate.json").read_text())
    assert [(run["profile"], run["verdict"]) for run in facts["runs"]] == [
        ("steady", "passed"),
        ("noisy-neighbor", "failed"),
    ]
    assert facts["exit_code"] == ExitCode.FAILED
    assert set(facts["runs"][1]["failed"]) == {"victim-latency", "victim-goodput"}


def test_one_junit_and_one_summary_hold_all_runs(tmp_path: Path) -> None:
    played(tmp_path, Simulations({"noisy-neighbor": "fifo"}), "steady", "noisy-neighbor")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    suites = list(root.iter("testsuite"))
    assert [suite.get("name") for suite in suites] == ["steady", "noisy-neighbor"]
    assert root.get("failures") == "2"
    assert int(root.get("tests", "0")) == len(list(root.iter("testcase")))
    text = (tmp_path / "summary.md").read_text()
    assert "| noisy-neighbor | failed | victim-latency, victim-goodput |" in text
    assert text.count("\n## ") == 2, "each run's own summary follows"


def test_an_inconclusive_run_is_made_once_more_and_the_rerun_counts(tmp_path: Path) -> None:
    one = played(tmp_path, Simulations(stalls=iter([True, False])), "steady")
    assert [entry.verdict for entry in one.entries] == ["inconclusive", "passed"]
    assert one.exit_code() == ExitCode.PASSED
    assert one.entries[1].rerun_of == "steady"
    assert len(list(ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testsuite"))) == 1


def test_two_inconclusive_runs_are_inconclusive(tmp_path: Path) -> None:
    one = played(tmp_path, Simulations(stalls=iter([True, True, True])), "steady")
    assert len(one.entries) == 2
    assert one.exit_code() == ExitCode.INCONCLUSIVE


def test_what_a_target_does_not_declare_no_second_run_decides(tmp_path: Path) -> None:
    silent = {"host": "127.0.0.1", "name": "gateway.yaml"}
    one = played(tmp_path, Simulations(target=silent), "limit-edges")
    assert [(entry.verdict, entry.undeclared) for entry in one.entries] == [("inconclusive", True)]
    assert one.exit_code() == ExitCode.INCONCLUSIVE


def test_a_stall_is_repeated_though_something_is_undeclared(tmp_path: Path) -> None:
    silent = {"host": "127.0.0.1", "name": "gateway.yaml"}
    one = played(tmp_path, Simulations(target=silent, stalls=iter([True, False])), "limit-edges")
    assert [entry.undeclared for entry in one.entries] == [False, True]


def test_inconclusive_may_be_told_to_pass(tmp_path: Path) -> None:
    one = played(tmp_path, Simulations(stalls=iter([True])), "steady", passes=True)
    assert one.exit_code() == ExitCode.PASSED
    assert one.entries[0].verdict == "inconclusive"


@pytest.mark.parametrize("wrong", ["", "a,,b", "steady,"])
def test_names_must_be_names(wrong: str) -> None:
    with pytest.raises(UsageError, match="--profiles"):
        gate.select(wrong)


def test_a_wrong_profile_is_found_before_anything_starts(tmp_path: Path) -> None:
    each = live.Options(profile="")
    with pytest.raises(UsageError, match="did you mean 'steady'"):
        gate.run(Options(profiles=("noisy-neighbor", "stedy"), out=tmp_path / "gate", each=each))
    assert sorted(one.name for one in (tmp_path / "gate").iterdir()) == sorted(gate.FILES)
    assert "did you mean 'steady'" in (tmp_path / "gate" / "summary.md").read_text()
    assert "Not begun when this was written: noisy-neighbor" in (tmp_path / "gate" / "summary.md").read_text()


class Ends(Simulations):
    """A run that cannot be made."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def __call__(self, options: live.Options, console: Console) -> Conclusion:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("the target answered 401: keys?", "a second line"), ExitCode.UNREACHABLE),
        (UsageError("its target file is gone"), ExitCode.USAGE),
        (InconclusiveError("no worker came"), ExitCode.INCONCLUSIVE),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ZeroDivisionError("a bug"), ExitCode.INCONCLUSIVE),
    ],
)
def test_whatever_ends_a_gate_ci_finds_its_files_and_the_reason_in_each(
    error: BaseException, code: ExitCode, tmp_path: Path
) -> None:
    one = Gate(
        Options(profiles=("steady", "herd"), each=live.Options(profile="")), tmp_path, QUIET, Ends(error)
    )
    if isinstance(error, AgentloadError):
        assert one.play("steady") == code
    else:
        with pytest.raises(type(error)):
            one.play("steady")
    reason = str(error) or "interrupted by the user"
    facts = json.loads((tmp_path / "gate.json").read_text())
    assert (facts["exit_code"], one.exit_code()) == (code, code)
    assert facts["runs"][0]["not_run"].endswith(reason)
    [suite] = ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testsuite")
    assert (suite.get("name"), suite.get("errors")) == ("steady", "1")
    assert reason.splitlines()[0] in str(next(suite.iter("error")).get("message"))
    text = (tmp_path / "summary.md").read_text()
    assert "steady: not run" in text
    assert reason.splitlines()[-1] in text
    assert "Not begun when this was written: herd" in text


def test_a_gate_in_which_nothing_was_run_gives_way_and_one_with_a_run_does_not(tmp_path: Path) -> None:
    wrong = Options(profiles=("stedy",), out=tmp_path / "gate", each=live.Options(profile=""))
    for _ in range(2):
        with pytest.raises(UsageError, match="did you mean 'steady'"):
            gate.run(wrong)
    written = (tmp_path / "gate" / "gate.json").read_text()
    (tmp_path / "gate" / "steady").mkdir()
    with pytest.raises(UsageError, match="did you mean 'herd'"):
        gate.run(msgspec.structs.replace(wrong, profiles=("hred",)))
    assert (tmp_path / "gate" / "gate.json").read_text() == written, "not touched"


def test_a_profile_from_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    mine = tmp_path / "files" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text(profile.find("steady").read_text().replace("name: steady", "name: calm", 1))
    out = tmp_path / "gate"
    out.mkdir()
    one = played(out, Simulations(), str(mine), str(mine))
    assert [(entry.profile, entry.folder) for entry in one.entries] == [("calm", "calm"), ("calm", "calm-2")]
    assert (out / "calm-2" / "report.json").exists()


# --------------------------------------------------------------------------- --scale auto


def test_one_calibration_is_enough_and_what_is_too_much_for_the_target_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    run: dict[str, str | None] = {}

    def measure(_o: live.Options, _p: live.Prepared, asks: list[calibration.Ask], _c: Console) -> Carried:
        measured.append(len(asks))
        return Carried(per_s=30.0, ended_by=EndedBy.TARGET)

    def record(options: live.Options, prepared: live.Prepared, console: Console) -> Conclusion:
        run[options.profile] = options.scale
        assert prepared.scale is not None
        return Simulations()(options, console)

    monkeypatch.setattr(calibration, "measure", measure)
    monkeypatch.setattr(live, "record", record)
    each = live.Options(profile="", scale="auto", command=("gate", "--scale", "auto"))
    names = ("steady", "long-jobs")
    assert gate.run(Options(profiles=names, each=each, out=tmp_path / "g")) == ExitCode.INCONCLUSIVE
    assert measured == [2]
    assert list(run) == ["steady"], "long-jobs cannot be made small enough"
    assert 0.2 < float(run["steady"] or 0) < 0.8
    facts = json.loads((tmp_path / "g" / "gate.json").read_text())
    assert [entry["verdict"] for entry in facts["runs"]] == ["passed", "inconclusive"], (
        "and is not tried again"
    )
    assert "long-jobs would have to be scaled by" in facts["runs"][1]["not_run"]
    root = ElementTree.parse(tmp_path / "g" / "junit.xml").getroot()
    assert root.get("errors") == "1"
    assert "long-jobs: not run" in (tmp_path / "g" / "summary.md").read_text()
