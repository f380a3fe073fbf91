"""Durable jobs as a load, over HTTP: two workers pursue them through a kill of the gateway."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agentload import rundir
from agentload.errors import ExitCode
from agentload.faults import fault_windows
from agentload.model import Outcome, Run

pytestmark = pytest.mark.live

PROFILE = """\
name: jobs
about: Jobs of two steps, and one kill.
phases: [{name: load, seconds: 5}]
provider: {slots: 16, latency: {first_token_ms: 30, first_token_cv: 0, inter_token_ms: 5}}
gateway: {pools: {shared: {slots: 16}}, jobs: {lease_s: 1}, retry: {base_seconds: 0.1, max_seconds: 0.5}}
tenants:
  - name: worker
    arrivals: {kind: constant, rate: 10}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 4, max_tokens: 8}
    job:
      steps: [{tool: {name: book, seconds: 0.4, side_effect: true}}, chat]
      deadline_s: 20
      poll_s: 0.1
      confirm_s: 0.2
  - name: plain
    arrivals: {kind: constant, rate: 5}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 4, max_tokens: 8}
checks: [{nothing-lost: {min_jobs: 20}}, {exactly-once: {min_repeats: 1}}, {lease-reclaim: {min_orphans: 1}}]
faults: [{kind: gateway-kill, at_s: 2, seconds: 0.3}]
drain_s: 25
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("jobs")
    (place / "jobs.yaml").write_text(PROFILE)
    command = [sys.executable, "-m", "agentload", "run", "jobs.yaml", "--workers", "2", "--out", "run"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == ExitCode.PASSED, done.stdout + done.stderr
    return place / "run"


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return rundir.load(folder)


def test_every_job_is_pursued_to_its_end(run: Run) -> None:
    assert [job.seq for job in run.jobs] == [a.seq for a in run.plan.arrivals if a.tenant == "worker"]
    assert Counter(job.state for job in run.jobs) == {"completed": len(run.jobs)}
    assert all(job.id and job.accepted_ns is not None and job.polls >= 2 for job in run.jobs)


def test_its_posts_are_records_like_others(run: Run) -> None:
    posts = Counter(record.seq for record in run.records if record.tenant == "worker")
    assert posts == {job.seq: job.posts for job in run.jobs}
    last = [record for record in run.records if record.final and record.tenant == "worker"]
    assert {(record.outcome, record.status) for record in last} == {(Outcome.ANSWERED, 202)}
    assert run.health.issued == run.health.scheduled == len(run.plan.arrivals)


def test_the_killed_gateway_finds_its_jobs_in_the_runs_folder(folder: Path, run: Run) -> None:
    assert (folder / "jobs.db").exists()
    (kill,) = fault_windows(run.profile)
    before = [job for job in run.jobs if (job.accepted_ns or kill.start_ns) < kill.start_ns]
    across = [job for job in before if (job.ended_ns or 0) > kill.end_ns]
    assert across
    assert all(job.attempts >= 1 or job.deliveries >= 1 for job in across)


def test_tools_are_on_the_runs_clock(run: Run) -> None:
    jobs = {job.id: job for job in run.jobs}
    assert run.tools
    for call in run.tools:
        job = jobs[call.job]
        assert call.ref == f"{job.seq}:{call.step}"
        assert job.due_ns < call.arrived_ns < (job.ended_ns or 0)
    effects = Counter(call.ref for call in run.tools if call.effect_ns is not None)
    assert effects == dict.fromkeys((f"{job.seq}:0" for job in run.jobs), 1)
