"""`agentload selftest` as a user meets it, and the golden kill matrix on a small subset."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentload import judge, mutants, simulate
from agentload.errors import ExitCode, UsageError
from agentload.model import Status
from agentload.selftest import Options, run
from agentload.selftest.cases import Case, load, scene_of
from agentload.selftest.play import play
from process_facts import wait_until

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "kill_matrix.json").read_bytes())
SUBSET = [
    "article-choose-next",
    "broken-stream-ends-well",
    "deadline-excludes-waiting",
    "estimates-never-corrected",
    "failed-calls-keep-their-slot",
    "ghosts-are-served",
    "nested-retries",
    "no-retry-after",
    "one-shared-queue",
    "same-retry-after-for-all",
    "slot-freed-at-first-byte",
    "strict-priority",
]
"""Of every family, and those that are quick: `make golden` refreshes the whole file."""

TAME = '''
from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant


class Tame(Mutant):
    """Breaks nothing, and claims that somebody must notice."""

    row = "F1"
    breaks = "nothing"
    killed_by = "own-answer"
    profile = "steady"

    def parts(self) -> Parts:
        return Parts()
'''
CRASHING = '''
from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.mutants import Mutant


class Crashing(Mutant):
    """Does not behave badly, but crashes."""

    row = "F1"
    breaks = "itself"
    killed_by = "own-answer"
    profile = "steady"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Crash)


class _Crash(RequestLifecycle):
    def handle(self, now_ns: int, event: object) -> list:
        raise ZeroDivisionError("on purpose")
'''


@pytest.mark.parametrize("name", SUBSET)
def test_the_golden_kill_matrix_still_holds(name: str) -> None:
    golden, mutant = GOLDEN["mutants"][name], mutants.SEAM.get(name)
    played = play(Case(name, scene_of(mutant), GOLDEN["seed"], GOLDEN["quick"]))
    failed = sorted({one.check for one in played.checks if one.status is Status.FAILED})
    assert not played.error
    assert failed == golden["failed"], "a verdict changed: look why; `make golden` when it is meant"


@pytest.mark.parametrize("name", SUBSET)
def test_the_reference_fails_no_check_where_the_mutant_does(name: str) -> None:
    scene = scene_of(mutants.SEAM.get(name))
    verdicts = judge.judge(simulate.simulate(load(scene, quick=True), GOLDEN["seed"]))
    assert [v.check for v in verdicts if v.status is Status.FAILED] == []


def test_the_golden_kill_matrix_has_every_mutant_killed_by_its_own_check() -> None:
    known = {name for name in mutants.SEAM.names() if not mutants.SEAM.get(name).cosmetic}
    assert set(GOLDEN["mutants"]) == known
    for name, row in GOLDEN["mutants"].items():
        mutant = mutants.SEAM.get(name)
        assert (row["named"], row["row"]) == (mutant.killed_by, mutant.row)
        assert row["named"] in row["failed"]


def test_a_selftest_leaves_three_files_and_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = Options(quick=True, mutants=("strict-priority", "twin-other-words"), seeds=2, out=out)
    assert run(options) == ExitCode.PASSED
    facts = json.loads((out / "selftest.json").read_bytes())
    [mutant] = facts["mutants"]
    assert (mutant["name"], mutant["kills"], mutant["seeds"]) == ("strict-priority", 2, 2)
    assert mutant["margin"]["separated"]
    lines = [json.loads(line) for line in (out / "selftest.jsonl").read_text().splitlines()]
    assert len(lines) == facts["played"] == facts["planned"]
    assert "strict-priority" in (out / "selftest.html").read_text()
    assert "1 of 1 mutants killed" in capsys.readouterr().out


def test_a_mutant_that_survives_and_one_that_crashes_fail_the_selftest(tmp_path: Path) -> None:
    (tmp_path / "mutants").mkdir()
    (tmp_path / "mutants" / "tame.py").write_text(TAME)
    (tmp_path / "mutants" / "crashing.py").write_text(CRASHING)
    command = [sys.executable, "-m", "agentload", "--plugins", str(tmp_path), "selftest", "--quick"]
    command += ["--mutants", "tame,crashing", "--seeds", "1", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert "nobody kills tame, crashing: a bug in the harness" in done.stdout
    assert "ZeroDivisionError: on purpose" in done.stdout
    assert "0 of 2 mutants killed" in done.stdout


def test_an_interrupted_selftest_keeps_what_was_done(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "agentload", "selftest", "--mutants", "one-shared-queue"]
    process = subprocess.Popen(
        [*command, "--seeds", "500", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        lines = out / "selftest.jsonl"
        wait_until(lambda: lines.exists() and lines.stat().st_size > 0, 60)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == ExitCode.INTERRUPTED, said
    facts = json.loads((out / "selftest.json").read_bytes())
    assert facts["interrupted"]
    assert 0 < facts["played"] < facts["planned"]
    assert facts["played"] == len(lines.read_text().splitlines())
    assert "INTERRUPTED" in said


def test_wrong_names_are_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'one-shared-queue'"):
        run(Options(mutants=("one-shared-que",), out=tmp_path / "out"))
    with pytest.raises(UsageError, match="--golden"):
        run(Options(mutants=("one-shared-queue",), golden=tmp_path / "golden.json"))
    assert not (tmp_path / "out").exists()
