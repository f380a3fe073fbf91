"""Whole runs over loopback: verdicts, files, and what happens when a part dies or the user wants out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentload import rundir
from agentload.errors import ExitCode
from hostile_servers import serving, stalls
from process_facts import wait_until

pytestmark = pytest.mark.live

PROFILE = """\
name: brief
about: Two tenants, a few seconds.
phases: [{name: load, seconds: SECONDS}]
provider: {slots: 8, latency: {first_token_ms: 20, inter_token_ms: 5}}
gateway: {pools: {shared: {slots: 8, classes: {standard: {}}}}}
tenants:
  - name: left
    arrivals: {kind: uniform, rate: 20}
    workload: {kind: fixed, output_tokens: 4}
    client: {kind: no-retry}
  - name: right
    arrivals: {kind: uniform, rate: 20}
    workload: {kind: chat, stream: 1}
    client: {kind: no-retry}
checks: [own-answer, status-codes, stream-integrity]
"""
PATIENCE_S = 40.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, seconds: float = 20) -> subprocess.Popen[str]:
        (tmp_path / "brief.yaml").write_text(PROFILE.replace("SECONDS", str(seconds)))
        command = [sys.executable, "-P", "-m", "agentload", "run", "brief.yaml", "--out", "run", *arguments]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def children(process: subprocess.Popen[str], module: str) -> list[psutil.Process]:
    """Descendants that run that module."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
        return [one for one in family if module in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def under_load(process: subprocess.Popen[str], folder: Path) -> None:
    """Returns when answers have been recorded."""
    records = folder / "run" / "records.jsonl"
    wait_until(lambda: records.exists() and records.stat().st_size > 2_000, PATIENCE_S)
    assert process.poll() is None


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run" / "report.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_from_start_to_verdict(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], workers: int
) -> None:
    code, output = finish(start("--workers", str(workers), seconds=3))
    assert code == ExitCode.PASSED, output
    facts = report(tmp_path)
    assert facts["verdict"] == "passed"
    assert facts["generator"]["scheduled"] == facts["generator"]["issued"] == 120
    assert facts["provider"]["offered"] == 120
    assert facts["provider"]["unattributed"] == 0
    assert {name: tenant["answered"] for name, tenant in facts["tenants"].items()} == {
        "left": 60,
        "right": 60,
    }
    assert facts["tenants"]["right"]["first_token_ms"]["p50"] > 20
    for name in ("report.html", "junit.xml", "summary.md", "latency.hlog", "manifest.json", "ledger.jsonl"):
        assert (tmp_path / "run" / name).stat().st_size > 0
    recorded = rundir.load(tmp_path / "run")
    assert len(recorded.records) == len(recorded.ledger) == 120


def test_a_run_can_be_judged_again(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    code, output = finish(start(seconds=2))
    assert code == ExitCode.PASSED, output
    before = report(tmp_path)
    again = subprocess.run(
        [sys.executable, "-m", "agentload", "judge", "run"], cwd=tmp_path, capture_output=True, check=False
    )
    assert again.returncode == ExitCode.PASSED
    assert report(tmp_path) == before


@pytest.mark.parametrize(
    ("module", "code", "words"),
    [
        ("agentload.drivers.locust_worker", ExitCode.INCONCLUSIVE, "worker"),
        ("agentload.drivers.locust_master", ExitCode.INCONCLUSIVE, "load driver died"),
        ("agentload.gateway", ExitCode.UNREACHABLE, "the gateway died"),
        ("fake_provider", ExitCode.UNREACHABLE, "the provider died"),
    ],
)
def test_a_part_that_is_killed_is_named_and_the_rest_is_reported(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], module: str, code: ExitCode, words: str
) -> None:
    process = start()
    under_load(process, tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    children(process, module)[0].send_signal(signal.SIGKILL)
    ended, output = finish(process)
    assert ended == code, output
    assert words in output
    assert "Traceback" not in output
    facts = report(tmp_path)
    assert facts["verdict"] != "passed"
    assert sum(tenant["answered"] for tenant in facts["tenants"].values()) > 0
    assert psutil.wait_procs(family, timeout=5)[1] == [], "no process is left behind"


def test_a_user_need_not_wait_for_a_target_that_never_answers(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    with serving(stalls(b"")) as target:
        process = start("--target", f"http://127.0.0.1:{target.port}")
        wait_until(lambda: target.connections > 0, 20)
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=10)
    assert process.returncode == ExitCode.INTERRUPTED, output
    assert "interrupted" in output


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_user_who_wants_out_gets_a_partial_report(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], how: signal.Signals
) -> None:
    process = start()
    under_load(process, tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, how)
    ended, output = finish(process)
    assert ended == ExitCode.INTERRUPTED, output
    assert "interrupted" in output
    assert "Traceback" not in output
    assert sum(tenant["answered"] for tenant in report(tmp_path)["tenants"].values()) > 0
    assert psutil.wait_procs(family, timeout=5)[1] == [], "no process is left behind"


def test_nothing_outlives_a_killed_cli(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start()
    under_load(process, tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert psutil.wait_procs(family, timeout=5)[1] == []
    folder = subprocess.run(
        [sys.executable, "-m", "agentload", "judge", "run"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
    )
    assert folder.returncode == ExitCode.INCONCLUSIVE, folder.stdout + folder.stderr


def test_a_provider_that_freezes_is_named(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(seconds=6)
    under_load(process, tmp_path)
    children(process, "fake_provider")[0].send_signal(signal.SIGSTOP)
    ended, output = finish(process)
    assert ended == ExitCode.UNREACHABLE, output
    assert "no longer answers" in output
    assert report(tmp_path)["interrupted"]


def test_a_reader_that_leaves_does_not_end_the_run(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(seconds=2)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == ExitCode.PASSED
    assert report(tmp_path)["verdict"] == "passed"


def test_files_of_the_users_folder_are_not_imported(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    for name in ("fake_provider", "json", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not yours to import')\n")
    code, output = finish(start(seconds=1))
    assert code == ExitCode.PASSED, output
