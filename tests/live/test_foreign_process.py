"""A gateway that is not ours, whose file names its process and metrics: it is measured, paused and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from agentload import rundir
from agentload.errors import ExitCode
from agentload.faults import fault_windows
from agentload.model import Outcome, Run
from foreign_gateway import serving
from process_facts import is_running, wait_until

pytestmark = pytest.mark.live

PROFILE = """\
name: faulty
about: A pause, and a kill.
phases: [{name: load, seconds: 8}]
provider: {slots: 16, overflow: queue, latency: {first_token_ms: 50, first_token_cv: 0, inter_token_ms: 1}}
gateway: {pools: {shared: {slots: 8, classes: {standard: {max_queue: 1000, max_wait_s: 30}}}}}
tenants:
  - name: app
    arrivals: {kind: constant, rate: 40}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 10, max_tokens: 24}
checks: [own-answer]
faults:
  - {kind: gateway-pause, at_s: 1, seconds: 0.8}
  - {kind: gateway-kill, at_s: 3, restart_after_s: 0.4}
"""
LONG = {
    "pause": "{kind: gateway-pause, at_s: 1, seconds: 5}",
    "kill": "{kind: gateway-kill, at_s: 1, restart_after_s: 5}",
}
SOON_NS = 150_000_000


def command(folder: Path, target: Path, *arguments: str) -> list[str]:
    (folder / "faulty.yaml").write_text(PROFILE)
    words = [sys.executable, "-P", "-m", "agentload", "run", "faulty.yaml", "--target", str(target)]
    return [*words, "--out", "run", *arguments]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "faulty.yaml").write_text(PROFILE)
    with serving(str(folder / "faulty.yaml"), folder / "gateway") as gateway:
        before = int((folder / "gateway/gateway.pid").read_text())
        done = subprocess.run(
            command(folder, gateway.target),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == ExitCode.PASSED, done.stdout + done.stderr
        after = int((folder / "gateway/gateway.pid").read_text())
        assert (is_running(before), is_running(after)) == (False, True), "it is left running"
        assert psutil.Process(after).status() != psutil.STATUS_STOPPED
    return rundir.load(folder / "run")


def window(run: Run, kind: str) -> tuple[int, int]:
    [found] = [one[1:] for one in fault_windows(run.profile) if one.kind == kind]
    return found


def test_it_stands_still_and_goes_on(run: Run) -> None:
    start_ns, end_ns = window(run, "gateway-pause")
    held = [one for one in run.records if start_ns + SOON_NS < one.sent_ns < end_ns - SOON_NS]
    assert len(held) > 15
    assert {one.outcome for one in held} == {Outcome.ANSWERED}
    assert min(one.ended_ns for one in held) >= end_ns


def test_it_is_killed_and_started_again(run: Run) -> None:
    start_ns, end_ns = window(run, "gateway-kill")
    away = [one for one in run.records if start_ns + SOON_NS < one.sent_ns < end_ns]
    assert {one.outcome for one in away} == {Outcome.FAILED}
    assert "connection-refused" in {one.reason for one in away}
    # How long it takes to come up is the machine's matter.
    assert any(one.outcome is Outcome.ANSWERED for one in run.records if one.sent_ns > end_ns)


def test_its_samples_are_called_as_those_of_the_bundled_gateway(run: Run) -> None:
    names = {"waiting", "oldest_age_s", "in_flight", "resident_bytes"}
    whole = [one.values for one in run.samples if one.source == "gateway" and one.values.keys() >= names]
    assert len(whole) > 10
    assert max(values["waiting"] for values in whole) > 5
    assert max(values["oldest_age_s"] for values in whole) > 0.1
    assert 1 <= max(values["in_flight"] for values in whole) <= 8
    assert min(values["resident_bytes"] for values in whole) > 20 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("fault", ["pause", "kill"])
def test_a_run_that_ends_during_a_fault_leaves_it_running(
    tmp_path: Path, how: signal.Signals, fault: str
) -> None:
    if (how, fault) == (signal.SIGKILL, "kill"):
        pytest.skip("nobody is left who could start it: the file foreign_hand.py says so")
    (tmp_path / "faulty.yaml").write_text(PROFILE)
    with serving(str(tmp_path / "faulty.yaml"), tmp_path / "gateway") as gateway:
        pid_file = tmp_path / "gateway/gateway.pid"
        words = command(tmp_path, gateway.target)
        (tmp_path / "faulty.yaml").write_text(PROFILE.partition("faults:")[0] + f"faults: [{LONG[fault]}]\n")
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: status(pid_file) == ("stopped" if fault == "pause" else "gone"), 60)
            os.kill(process.pid, how)
            process.wait(timeout=60)
            wait_until(lambda: status(pid_file) == "runs", 10)
        finally:
            process.kill()
            process.wait()


def status(pid_file: Path) -> str:
    try:
        found = psutil.Process(int(pid_file.read_text())).status()
    except (psutil.Error, ValueError):
        return "gone"
    return (
        "stopped" if found == psutil.STATUS_STOPPED else "gone" if found == psutil.STATUS_ZOMBIE else "runs"
    )
