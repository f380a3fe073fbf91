"""`agentload simulate` and `agentload agree`: folders, exit codes, and what ^C leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agentload import agree, judge, profile, rundir, seed_sweep, simulate
from agentload.drivers.simulated.network import Timing
from agentload.errors import ExitCode, UsageError
from agentload.measure import Recorder
from agentload.model import Run, Status
from agentload.simulate import Options

STEADY = ("phases.steady.seconds=12",)
SHORT = ("phases.baseline.seconds=6", "phases.noise.seconds=6", "phases.recovery.seconds=4")
ENDLESS = ["--set", "phases.small.seconds=3600", "--set", "phases.heavy.seconds=3600"]


def test_one_run_leaves_a_folder_like_a_live_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert simulate.run(Options(profile="steady", out=out, settings=STEADY)) == ExitCode.PASSED
    report = json.loads((out / "report.json").read_bytes())
    again = simulate.simulate(profile.load(profile.find("steady"), STEADY), 1)
    assert (report["driver"], report["digest"]) == ("simulated", again.meta["digest"])
    assert (report["verdict"], report["interrupted"]) == ("passed", None)
    assert {path.name for path in out.iterdir()} >= {
        "report.html",
        "junit.xml",
        "summary.md",
        "records.jsonl",
    }
    assert again.meta["digest"] in capsys.readouterr().out
    loaded = rundir.load(out)
    assert loaded.records == again.records
    assert [v.status for v in judge.judge(loaded)] == [v.status for v in judge.judge(again)]


def test_the_latency_log_holds_every_recorded_request(tmp_path: Path) -> None:
    out = tmp_path / "run"
    simulate.run(Options(profile="steady", out=out, settings=("phases.steady.seconds=2",)))
    lines = (out / "latency.hlog").read_text().splitlines()
    logical = [Recorder.decode(line.rpartition(",")[2]) for line in lines if "/logical/" in line]
    recorded = [r for r in rundir.load(out).records if r.final and r.phase == "steady"]
    assert sum(recorder.count for recorder in logical) == len(recorded)


def test_many_seeds_leave_a_line_each_and_the_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "seeds"
    options = Options(profile="noisy-neighbor", policy="fifo", seed=7, seeds=3, out=out, settings=SHORT)
    assert simulate.run(options) == ExitCode.FAILED
    lines = [json.loads(line) for line in (out / "seeds.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [7, 8, 9]
    assert len({line["digest"] for line in lines}) == 3
    counts = json.loads((out / "seeds.json").read_bytes())
    by_check = {row["check"]: row for row in counts["checks"]}
    assert by_check["victim-goodput"]["failed"] == 3
    assert by_check["retry-after-present"]["passed"] == 3
    assert capsys.readouterr().out.count("victim-goodput") >= 4
    alone = seed_sweep.judge_seed(
        simulate.with_policy(profile.load(profile.find("noisy-neighbor"), SHORT), "fifo"), 8
    )
    assert alone.digest == lines[1]["digest"]


def test_many_seeds_that_pass_exit_with_0(tmp_path: Path) -> None:
    options = Options(profile="steady", seeds=2, out=tmp_path / "seeds", settings=STEADY)
    assert simulate.run(options) == ExitCode.PASSED


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "agentload", "simulate", "weighted-fair", *ENDLESS, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "into" not in process.stdout.readline():
        assert process.poll() is None
    return process


def test_interrupting_a_run_leaves_what_was_done(tmp_path: Path) -> None:
    process = start("--out", str(tmp_path / "run"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, err
    assert "the report covers what was done until then" in out
    run = rundir.load(tmp_path / "run")
    assert run.interrupted
    assert (tmp_path / "run" / "report.html").exists()


def test_interrupting_many_seeds_leaves_whole_lines(tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    short = ["--set", "phases.small.seconds=3", "--set", "phases.heavy.seconds=3"]
    process = start(*short, "--seeds", "200", "--out", str(out))
    assert process.stdout is not None
    assert "seed" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, err
    done = [json.loads(line)["seed"] for line in (out / "seeds.jsonl").read_text().splitlines()]
    assert 1 <= len(done) < 200
    assert done == json.loads((out / "seeds.json").read_bytes())["seeds"]


# --------------------------------------------------------------------------- agree


def recorded() -> Run:
    run = simulate.simulate(profile.load(profile.find("steady"), STEADY), 1)
    run.meta["target"] = {"kind": "bundled"}
    return run


def as_if_live(folder: Path, **changes: object) -> None:
    """Let a simulation's folder say that it is a live run's: what agree makes of it is known beforehand."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"driver": "live"} | changes))


def test_a_run_like_its_simulation_agrees_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate.run(Options(profile="steady", out=tmp_path / "run", settings=STEADY))
    with pytest.raises(UsageError, match="is a simulation itself"):
        agree.run(tmp_path / "run")
    as_if_live(tmp_path / "run")
    capsys.readouterr()
    assert agree.run(tmp_path / "run") == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert "verdict provider-limit" in shown
    assert "they agree" in shown


def test_what_differs_by_more_than_its_tolerance_is_named() -> None:
    run = recorded()
    run.records = [
        msgspec.structs.replace(r, ended_ns=r.due_ns + 2 * (r.ended_ns - r.due_ns))
        if r.tenant == "search"
        else r
        for r in run.records
    ]
    apart = [row.metric for row in agree.compare(run) if not row.agrees and not row.explained]
    assert {"search: p50", "search: p95"} <= set(apart)
    assert not any(metric.startswith("assistant") for metric in apart)


def test_what_differs_by_chance_is_explained() -> None:
    """A storm over a slower network: clients that come back make another story of the same plan."""
    storm = profile.quick(profile.load(profile.find("retry-storm"), []))
    slower = Timing(one_way_ns=agree.ONE_WAY_US[-1] * 1_000)
    rows = agree.compare(simulate.simulate(storm, 2, timing=slower))
    assert [row.metric for row in rows if row.explained], "the network's speed makes a difference"
    assert not [row.metric for row in rows if not row.agrees and not row.explained]


def test_a_verdict_that_differs_never_agrees() -> None:
    run = recorded()
    run.records[-1] = msgspec.structs.replace(run.records[-1], status=500)
    rows = {row.metric: row for row in agree.compare(run)}
    assert rows["verdict status-codes"].live.startswith(Status.FAILED)
    assert not rows["verdict status-codes"].agrees
    assert not rows["verdict status-codes"].explained
    assert rows["verdict own-answer"].agrees


def test_only_whole_runs_of_the_bundled_gateway_can_be_compared(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    simulate.run(Options(profile="steady", out=folder, settings=STEADY))
    as_if_live(folder, target={"name": "http://127.0.0.1:1"})
    with pytest.raises(UsageError, match="not a run of the bundled gateway"):
        agree.run(folder)
    as_if_live(folder, interrupted="interrupted by the user")
    with pytest.raises(UsageError, match="cut short"):
        agree.run(folder)
