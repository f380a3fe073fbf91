"""Faults that really happen: in one run the provider is cut, the gateway paused, killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from agentload import behaviours, rundir
from agentload.errors import ExitCode
from agentload.evidence.health_samples import STATUS, TOOK_S, samples_of
from agentload.faults import fault_windows
from agentload.model import NS, CallEnding, Outcome, RequestRecord, Run
from process_facts import wait_until

pytestmark = pytest.mark.live

PROFILE = """\
name: faulty
about: Fewer slots, a pause, a kill.
phases: [{name: load, seconds: 2}, {name: cut, seconds: 1.5}, {name: after, seconds: 4.5}]
provider: {slots: 64, overflow: queue, latency: {first_token_ms: 100, first_token_cv: 0, inter_token_ms: 10}}
gateway: {pools: {shared: {slots: 32, classes: {standard: {max_queue: 1000, max_wait_s: 30}}}}}
tenants:
  - name: app
    arrivals: {kind: constant, rate: 40}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 10, max_tokens: 24, stream: 0.5}
  - name: leavers
    arrivals: {kind: constant, rate: 10}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 20, max_tokens: 48, stream: 1}
    clients:
      - {share: 0.5, kind: quitter, leave_s: 0.05}
      - {share: 0.25, kind: quitter, leave_tokens: 3}
      - {share: 0.25, kind: openai-sdk, timeout_s: 20, retry_budget: 0.1}
checks: [own-answer, {health-probe: {severity: should}}]   # too short for its ten probes
faults:
  - {kind: slots-cut, phase: cut, to: 2}
  - {kind: gateway-pause, at_s: 1, seconds: 0.6}
  - {kind: gateway-kill, at_s: 4.5, restart_after_s: 0.4}
"""
SOON_NS = 100_000_000


def command(folder: Path, *arguments: str) -> list[str]:
    (folder / "faulty.yaml").write_text(PROFILE)
    return [sys.executable, "-m", "agentload", "run", "faulty.yaml", "--out", "run", *arguments]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("faulty")
    done = subprocess.run(
        command(folder), cwd=folder, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == ExitCode.PASSED, done.stdout + done.stderr
    return rundir.load(folder / "run")


def window(run: Run, kind: str) -> tuple[int, int]:
    [found] = [one[1:] for one in fault_windows(run.profile) if one.kind == kind]
    return found


def of(run: Run, tenant: str) -> list[RequestRecord]:
    return [record for record in run.records if record.tenant == tenant]


def test_the_run_goes_on_to_its_end(run: Run) -> None:
    assert run.interrupted is None
    assert run.health.scheduled == run.health.issued
    assert [fault.kind for fault in run.profile.faults] == ["slots-cut", "gateway-pause", "gateway-kill"]


def test_the_health_page_is_asked_once_a_second_and_answers_but_for_the_kill_and_the_pause(run: Run) -> None:
    probes = [(one.at_ns, one.values[STATUS], one.values[TOOK_S]) for one in samples_of(run.samples)]
    assert 6 <= len(probes) <= 9
    killed, paused = window(run, "gateway-kill"), window(run, "gateway-pause")
    for at_ns, status, took_s in probes:
        if killed[0] <= at_ns < killed[1] + 3 * NS:  # and until the new process listens
            continue
        assert status == 200
        assert took_s > 0.2 if paused[0] <= at_ns < paused[1] - 0.3 * NS else took_s < 1


def test_the_provider_has_fewer_slots_from_the_right_moment_to_the_right_moment(run: Run) -> None:
    start_ns, end_ns = window(run, "slots-cut")
    began = sorted(entry.started_ns for entry in run.ledger if entry.started_ns is not None)
    inside = [at_ns for at_ns in began if start_ns + 3 * SOON_NS < at_ns < end_ns - SOON_NS]
    assert max(in_service(run, at_ns) for at_ns in inside) == 2
    waited = [entry.queued_ns for entry in run.ledger if entry.queued_ns is not None]
    assert start_ns <= min(waited) < start_ns + SOON_NS
    healed = [at_ns for at_ns in began if end_ns - SOON_NS < at_ns and in_service(run, at_ns) > 2]
    assert end_ns <= healed[0] < end_ns + SOON_NS


def in_service(run: Run, at_ns: int) -> int:
    """Calls at the provider just after an instant."""
    return sum(
        entry.started_ns is not None and entry.started_ns <= at_ns and (entry.ended_ns or at_ns + 1) > at_ns
        for entry in run.ledger
    )


def test_a_paused_gateway_holds_everything_and_goes_on(run: Run) -> None:
    start_ns, end_ns = window(run, "gateway-pause")
    held = [one for one in of(run, "app") if start_ns + SOON_NS < one.sent_ns < end_ns - SOON_NS]
    assert len(held) > 10
    assert {record.outcome for record in held} == {Outcome.ANSWERED}
    assert min(record.ended_ns for record in held) > end_ns
    assert not [s for s in run.samples if start_ns + SOON_NS < s.at_ns < end_ns - SOON_NS]


def test_a_killed_gateway_loses_what_it_held_and_comes_back_on_the_same_port(run: Run) -> None:
    start_ns, end_ns = window(run, "gateway-kill")
    away = [one for one in of(run, "app") if start_ns + SOON_NS < one.sent_ns < end_ns]
    assert len(away) > 10
    assert {(record.outcome, record.reason) for record in away} == {(Outcome.FAILED, "connection-refused")}
    lost = [one for one in of(run, "app") if one.sent_ns < start_ns < one.ended_ns]
    # The signal goes out a moment after the planned instant: what was answered until then was not held.
    answered = [one for one in lost if one.outcome is Outcome.ANSWERED]
    assert all(one.ended_ns < start_ns + SOON_NS for one in answered)
    broken = [one for one in lost if one not in answered]
    assert broken
    assert {record.outcome for record in broken} <= {Outcome.FAILED, Outcome.TRUNCATED}
    last = [one for one in of(run, "app") if one.sent_ns > run.profile.duration_ns - NS]
    assert {record.outcome for record in last} == {Outcome.ANSWERED}
    dropped = [entry for entry in run.ledger if entry.ending is CallEnding.CANCELLED]
    assert any(start_ns <= (entry.ended_ns or 0) < start_ns + SOON_NS for entry in dropped)


def test_every_request_had_the_program_that_was_drawn_for_it(run: Run) -> None:
    [leavers] = run.profile.tenants_named("leavers")
    programs = {r.seq: behaviours.client_of(leavers, run.plan.seed, r.seq) for r in of(run, "leavers")}
    assert set(Counter(spec.kind for spec in programs.values())) == {"quitter", "openai-sdk"}
    for record in of(run, "leavers"):
        params = programs[record.seq].params
        if "leave_s" in params and record.outcome is Outcome.ABANDONED:
            assert (record.reason, record.output_tokens) == ("left", 0)
            assert 0.05 * NS <= record.ended_ns - record.sent_ns < 0.05 * NS + SOON_NS
        elif "leave_tokens" in params and record.outcome is Outcome.ABANDONED:
            assert 3 <= record.output_tokens < 20
            assert record.status == 200
        assert record.outcome is not Outcome.ABANDONED or programs[record.seq].kind == "quitter"
    endings = Counter((str(programs[r.seq].params), r.outcome) for r in of(run, "leavers"))
    assert endings["{'leave_s': 0.05}", Outcome.ABANDONED] > 20
    assert endings["{'leave_tokens': 3}", Outcome.ABANDONED] > 5


def test_somebodys_gateway_is_not_touched_unless_its_file_says_so(tmp_path: Path) -> None:
    wrong = command(tmp_path, "--target", "http://127.0.0.1:9")
    done = subprocess.run(wrong, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.USAGE
    assert "faults[1]: gateway-pause happens to a process: say which in the target file" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_run_that_ends_during_a_pause_leaves_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    faults = ["--set", "faults.1.at_s=1.5", "--set", "faults.1.seconds=6", "--set", "faults.2.at_s=0.5"]
    process = subprocess.Popen(
        command(tmp_path, *faults), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: stopped(process.pid), 60)
        family = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, how)
        assert process.wait(timeout=60) == (ExitCode.INTERRUPTED if how is signal.SIGINT else -how)
        assert psutil.wait_procs(family, timeout=5)[1] == []
    finally:
        process.kill()
        process.wait()


def stopped(pid: int) -> bool:
    """A child of that process stands still."""
    try:
        family = psutil.Process(pid).children(recursive=True)
        return any(one.status() == psutil.STATUS_STOPPED for one in family)
    except psutil.Error:
        return False
