"""Durable jobs in virtual time: promises are kept, the same seed is the same run, mutants are noticed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from agentload import judge, mutants, profile, provider_records, rundir
from agentload.model import JobRecord, Profile, Status, ToolRecord
from agentload.rundir import RunDir
from agentload.simulate import parts_of, simulate

OF_JOBS = sorted(name for name in mutants.SEAM.names() if mutants.SEAM.get(name).profile == "worker-crash")


@pytest.fixture(scope="module")
def crash() -> Profile:
    return profile.quick(profile.load(profile.find("worker-crash")))


def test_the_reference_keeps_its_promises_and_the_same_seed_is_the_same_run(crash: Profile) -> None:
    first, second = simulate(crash, 1), simulate(crash, 1)
    assert {verdict.status for verdict in judge.judge(first)} == {Status.PASSED}
    assert first.meta == second.meta
    assert (first.jobs, first.tools, first.records) == (second.jobs, second.tools, second.records)
    assert any(job.posts > 1 for job in first.jobs)
    assert any(call.duplicate for call in first.tools)


def test_jobs_are_attributed_to_their_callers_at_the_provider(crash: Profile) -> None:
    run = simulate(crash, 2)
    chats = {job.seq for job in run.jobs if job.tenant == "batch"}
    assert chats <= {call.seq for call in run.ledger}
    assert {call.tenant for call in run.ledger if call.seq in chats} == {"batch"}


@pytest.mark.parametrize("name", OF_JOBS)
def test_a_broken_promise_is_noticed_by_its_check(crash: Profile, name: str) -> None:
    run = simulate(crash, 1, parts=parts_of(name))
    failed = {verdict.check for verdict in judge.judge(run) if verdict.status is Status.FAILED}
    assert mutants.SEAM.get(name).killed_by in failed


def test_a_run_with_jobs_is_read_back_as_it_was(crash: Profile, tmp_path: Path) -> None:
    run = simulate(crash, 1)
    folder = RunDir.create("crash", datetime(2026, 1, 1), out=tmp_path / "run")
    folder.save(run, rundir.manifest_of(run.profile, run.plan, run.driver, datetime(2026, 1, 1)))
    again = rundir.load(folder.path)
    assert (again.jobs, again.tools) == (run.jobs, run.tools)
    folder.jobs_path.write_bytes(b"".join(folder.jobs_path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(rundir.DamagedFileError, match=r"jobs\.jsonl"):
        rundir.load(folder.path)


def test_a_run_without_jobs_has_no_files_of_them(tmp_path: Path) -> None:
    chosen = profile.load(profile.find("steady"), ["phases.steady.seconds=1"])
    run = simulate(chosen, 1)
    folder = RunDir.create("steady", datetime(2026, 1, 1), out=tmp_path / "run")
    folder.save(run, rundir.manifest_of(run.profile, run.plan, run.driver, datetime(2026, 1, 1)))
    assert not folder.jobs_path.exists()
    assert not folder.tools_path.exists()
    assert rundir.load(folder.path).jobs == []


def test_the_tools_ledger_is_put_on_the_runs_clock() -> None:
    raw = {"call": 1, "tool": "t", "arrived_ns": 105, "ended_ns": None, "effect_ns": 120, "unheard": 1}
    (call,) = provider_records.tools_from_provider([raw], 100)
    assert call == ToolRecord(call=1, tool="t", arrived_ns=5, effect_ns=20)
    assert (
        msgspec.json.decode(
            b'{"seq":1,"tenant":"a","service_class":"s","phase":"p","due_ns":1,'
            b'"deadline_ns":2,"key":"k","steps":1}',
            type=JobRecord,
        ).state
        is None
    )
