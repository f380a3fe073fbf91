"""Whole runs with a provider that is no child of theirs: another host's, another run's, somebody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentload import rundir
from agentload.drivers import probe
from agentload.drivers.provider_control import ProviderControl, ProviderTakenError
from agentload.errors import ExitCode
from agentload.faults import fault_windows
from agentload.model import CallEnding, Outcome, Run
from another_clock import AHEAD, NO_NAMESPACES, has_time_namespaces
from fake_provider.control_token import TOKEN_VARIABLE
from process_facts import wait_until
from provider_helpers import ProviderProcess

pytestmark = pytest.mark.live

TOKEN = "correct-horse-battery"
PROFILE = """\
name: brief
about: Two phases, and an outage in the second.
phases: [{name: load, seconds: SECONDS}, {name: out, seconds: 1}]
provider: {slots: 8, latency: {first_token_ms: 20, first_token_cv: 0, inter_token_ms: 5}}
gateway: {pools: {shared: {slots: 8, classes: {standard: {}}}}}
tenants:
  - name: app
    arrivals: {kind: uniform, rate: 40}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 10, max_tokens: 16, stream: 1}
    client: {kind: no-retry}
checks: [own-answer, status-codes, retry-after-present, bounded-queue, provider-limit, concurrency-cap]
"""
SERIES = "{url: /_fake/health, waiting: no_such}"
FAULT = "faults: [{kind: outage, phase: out}]\n"


def run_of(folder: Path, *arguments: str, seconds: float = 2, faults: str = FAULT) -> subprocess.Popen[str]:
    (folder / "brief.yaml").write_text(PROFILE.replace("SECONDS", str(seconds)) + faults)
    command = [sys.executable, "-P", "-m", "agentload", "run", "brief.yaml", *arguments]
    environment = {**os.environ, TOKEN_VARIABLE: TOKEN}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def verdicts(folder: Path) -> dict[str, str]:
    report = json.loads((folder / "report.json").read_text())
    return {check["check"]: check["status"] for check in report["checks"]}


@contextmanager
def another_host(folder: Path) -> Generator[str]:
    """A provider whose monotonic clock is a day ahead, and which wants a token."""
    command = [*AHEAD, sys.executable, "-m", "fake_provider", "--port=0", "--parent-pipe"]
    environment = {**os.environ, TOKEN_VARIABLE: TOKEN}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.communicate(timeout=20)


@pytest.mark.skipif(not has_time_namespaces(), reason=NO_NAMESPACES)
def test_a_run_in_front_of_a_provider_with_another_clock(tmp_path: Path) -> None:
    with another_host(tmp_path) as url:
        code, output = finish(run_of(tmp_path, "--provider", url, "--out", "run"))
    assert "clocks agree within ±" in output
    run = rundir.load(tmp_path / "run")
    assert 0 < run.clock_uncertainty_ns < 50_000_000, output
    assert code not in (ExitCode.USAGE, ExitCode.UNREACHABLE), output
    answers = [record.own_answer for record in run.records if record.outcome is Outcome.ANSWERED]
    assert set(answers) == {True}
    assert_one_clock(run)


def assert_one_clock(run: Run) -> None:
    """Calls arrive after they were sent and end before they are answered; the outage is where it belongs."""
    slack_ns = run.clock_uncertainty_ns
    records = {record.seq: record for record in run.records}
    assert len(run.ledger) > 80
    for call in run.ledger:
        assert call.seq is not None
        assert call.arrived_ns >= records[call.seq].sent_ns - slack_ns
        assert call.ended_ns is not None
        assert call.ended_ns <= records[call.seq].ended_ns + slack_ns
    [outage] = fault_windows(run.profile)
    refused = [call for call in run.ledger if call.ending is CallEnding.FAULTED]
    assert {call.reason for call in refused} == {"outage"}
    assert len(refused) > 5
    for call in run.ledger:
        inside = outage.start_ns + slack_ns < call.arrived_ns < outage.end_ns - slack_ns
        assert not inside or call in refused
    assert all(call.arrived_ns >= outage.start_ns - slack_ns for call in refused)


@pytest.mark.slow
def test_two_runs_want_one_provider(tmp_path: Path) -> None:
    """The second is told at once; taken by force, the provider costs the first its ledger, and it says so."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with ProviderProcess() as provider, probe.client() as http:
        first = run_of(folders[0], "--provider", provider.url, "--out", "run", seconds=20, faults="")
        try:
            records = folders[0] / "run" / "records.jsonl"
            wait_until(lambda: records.exists() and records.stat().st_size > 2_000, 40)
            code, output = finish(run_of(folders[1], "--provider", provider.url, "--out", "run"))
            assert code == ExitCode.INCONCLUSIVE
            assert "has this provider for itself" in output
            assert first.poll() is None
            take(ProviderControl(http, provider.url))
            code, output = finish(first)
        finally:
            first.kill()
            first.wait()
    assert code == ExitCode.INCONCLUSIVE, output
    assert "another one has begun" in output
    found = verdicts(folders[0] / "run")
    assert found["bounded-queue"] == "inconclusive"
    assert rundir.load(folders[0] / "run").ledger == []


@pytest.mark.slow
def test_a_provider_elsewhere_that_is_killed_ends_the_run(tmp_path: Path) -> None:
    """Long before the load would have ended; what was sent until then is reported, and its ledger is not."""
    with ProviderProcess() as provider:
        run = run_of(tmp_path, "--provider", provider.url, "--out", "run", seconds=600, faults="")
        try:
            records = tmp_path / "run" / "records.jsonl"
            wait_until(lambda: records.exists() and records.stat().st_size > 2_000, 40)
            provider.process.kill()
            code, output = finish(run)
        finally:
            run.kill()
            run.wait()
    assert code == ExitCode.UNREACHABLE, output
    assert f"the provider was lost during the run: the provider's control at {provider.url}" in output
    lost = rundir.load(tmp_path / "run")
    assert lost.no_ledger_because == "the provider was lost, and its ledger with it"
    assert len(lost.records) > 20


def take(control: ProviderControl) -> None:
    run = control.health()["run"]
    while control.health()["run"] == run:
        with suppress(ProviderTakenError):
            control.hold(run, 0)
            control.begin((run + 1) % 65_536, {})


def test_somebody_elses_provider(tmp_path: Path) -> None:
    """Ours, treated as a foreign one: what rests on its ledger is inconclusive, the rest is judged."""
    with ProviderProcess(settings={"slots": 64}) as provider:
        file = tmp_path / "gateway.yaml"
        file.write_text(f"base_url: {provider.url}\nprovider: external\nmetrics: {SERIES}\n")
        code, output = finish(run_of(tmp_path, "--target", "gateway.yaml", faults=""))
        assert code == ExitCode.USAGE
        assert "may cost real money: 120 requests with" in output
        assert "if you mean it, say --allow-cost" in output
        allowed = ("--target", "gateway.yaml", "--allow-cost", "--out", "run")
        code, output = finish(run_of(tmp_path, *allowed))
        assert code == ExitCode.USAGE
        assert "outage happens to our provider, and the target has `provider: external`" in output
        code, output = finish(run_of(tmp_path, *allowed, faults=""))
        assert provider.control("GET", "health")["run"] == 0, "its control was not touched"
    assert code == ExitCode.INCONCLUSIVE, output
    assert "holds no no_such (waiting): checks that need it will be inconclusive" in output
    assert "120 requests with about 2,880 input and up to 1,920 output tokens" in output
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    resting = {c["check"] for c in report["checks"] if "rests on our provider's ledger" in c["because"]}
    assert resting == {"bounded-queue", "provider-limit"}
    assert {c["status"] for c in report["checks"] if c["check"] in resting} == {"inconclusive"}
    [cap] = [c["because"] for c in report["checks"] if c["check"] == "concurrency-cap"]
    assert "declare" in cap, "nobody says what it is"
    assert "the provider is somebody else's, as the target file says" in " ".join(output.split())
    assert "<html" in (tmp_path / "run" / "report.html").read_text()
