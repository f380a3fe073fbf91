"""The run folder: what is written is read back, a crash costs a line, and errors are one line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import report_run
from agentload import judge, provider_records, rundir
from agentload.errors import AgentloadError, InconclusiveError, UnreachableError, UsageError
from agentload.model import NS, CallEnding, Run
from agentload.rundir import RunDir, RunFolderError
from agentload.rundir.unbegun import clear_away
from agentload.storage import DamagedFileError, StorageError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def saved(folder: Path, run: Run | None = None) -> RunDir:
    run = run or report_run.run()
    made = RunDir.create("noisy-neighbor", NOW, out=folder)
    made.save(
        run, rundir.manifest_of(run.profile, run.plan, run.driver, NOW, versions={"agentload": "0.1.0"})
    )
    return made


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    run = report_run.run()
    again = rundir.load(saved(tmp_path / "run").path)
    assert again.profile == run.profile
    assert again.plan == run.plan
    assert again.records == run.records
    assert again.ledger == run.ledger
    assert again.samples == run.samples
    assert again.health == run.health
    assert (again.driver, again.unattributed, again.interrupted) == ("live", 0, None)
    assert again.ledger_available
    assert judge.judge(again) == judge.judge(run)


@pytest.mark.parametrize(
    ("target", "known"),
    [({}, True), ({"host": "h", "health": "/healthz"}, True), ({"host": "h", "health": None}, False)],
    ids=["bundled", "named", "not named"],
)
def test_a_folder_says_whether_a_health_page_was_asked(
    tmp_path: Path, target: dict[str, Any], known: bool
) -> None:
    folder = saved(tmp_path / "run")
    manifest = json.loads(folder.manifest_path.read_bytes())
    folder.manifest_path.write_text(json.dumps(manifest | {"target": target}))
    assert rundir.load(folder.path).health_page is known


@pytest.mark.parametrize("cancel", [None, "POST /v1/jobs/{id}/stop"])
def test_a_folder_says_whether_clients_could_tell_that_they_left(tmp_path: Path, cancel: str | None) -> None:
    folder = saved(tmp_path / "run")
    assert rundir.load(folder.path).hears_departures, "the bundled gateway"
    manifest = json.loads(folder.manifest_path.read_bytes())
    jobs = {"cancel": cancel, "body": {"q": "{prompt}"}, "poll": "/v1/jobs/{id}"}
    target = {"host": "h", "flavour": "jobs", "options": {"jobs": jobs}}
    folder.manifest_path.write_text(json.dumps(manifest | {"target": target}))
    assert rundir.load(folder.path).hears_departures is (cancel is not None)


def test_folders_are_named_after_profile_and_time_and_never_used_twice(tmp_path: Path) -> None:
    first, second, third = (RunDir.create("my/own profile", NOW, reports=tmp_path) for _ in range(3))
    assert first.path.name == "my-own-profile-20260102-030405"
    assert second.path.name == first.path.name + "-2"
    assert third.path.name == first.path.name + "-3"
    assert first.logs.is_dir()


def test_an_occupied_out_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        RunDir.create("p", NOW, out=tmp_path)
    assert RunDir.create("p", NOW, out=tmp_path / "new").path.is_dir()


def test_a_torn_last_line_is_skipped_and_counted(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    whole = folder.records_path.read_bytes()
    folder.records_path.write_bytes(whole[:-20])
    again = rundir.load(folder.path)
    assert again.records == report_run.run().records[:-1]
    assert again.health.records_lost == 1
    assert again.meta["torn_lines"] == 1


@pytest.mark.parametrize("name", ["records.jsonl", "ledger.jsonl"])
@pytest.mark.parametrize("part", [0.0, 0.5, 2.0])
def test_a_file_that_was_cut_or_doubled_since_is_not_judged(tmp_path: Path, name: str, part: float) -> None:
    file = saved(tmp_path / "run").path / name
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join((lines * 2)[: round(len(lines) * part)]))
    with pytest.raises(DamagedFileError, match=f"{name}: holds .* were written: it was changed"):
        rundir.load(tmp_path / "run")


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    lines = folder.ledger_path.read_bytes().split(b"\n")
    lines[2] = b'{"call": "x"'
    folder.ledger_path.write_bytes(b"\n".join(lines))
    with pytest.raises(DamagedFileError, match=r"ledger\.jsonl:3: damaged") as caught:
        rundir.load(folder.path)
    assert len(caught.value.lines) == 1


def test_a_run_that_died_is_readable_but_not_to_be_trusted(tmp_path: Path) -> None:
    run = report_run.run()
    folder = RunDir.create("p", NOW, out=tmp_path / "run")
    folder.write_manifest(rundir.manifest_of(run.profile, run.plan, "live", NOW))
    with folder.records() as records:
        records.extend(run.records[:10])
    again = rundir.load(folder.path)
    assert len(again.records) == 10
    assert again.interrupted is not None
    assert not again.health.trustworthy
    assert again.health.reasons
    assert not again.ledger_available, "the ledger is fetched at the end, so there is none"


def test_a_run_that_died_has_the_ledger_that_the_provider_wrote_down(tmp_path: Path) -> None:
    run = report_run.run()
    folder = RunDir.create("p", NOW, out=tmp_path / "run")
    t0_ns = 987_654_321
    folder.write_manifest(rundir.manifest_of(run.profile, run.plan, "live", NOW, t0_ns=t0_ns))
    with folder.records() as records:
        records.extend(run.records)
    probe = {"call": 0, "arrived_ns": t0_ns - 5, "ending": "completed", "run": 9}
    stray = {"call": 1, "arrived_ns": t0_ns + 5, "ending": "completed", "run": 9, "reason": "a newer field"}
    lines = [json.dumps(entry) for entry in (probe, stray, *as_the_provider_says(run, t0_ns))]
    folder.provider_ledger_path.write_text("\n".join(lines) + '\n{"call": 99, "arri')
    again = rundir.load(folder.path)
    assert again.ledger_available
    assert again.ledger[1:] == run.ledger[:50]
    assert (again.ledger[0].tenant, again.unattributed) == (None, 1)
    assert again.meta["torn_lines"] == 1
    assert again.interrupted is not None
    assert "process died" in again.interrupted
    assert "the provider wrote down" in again.interrupted
    folder.ledger_path.write_text('{"half": ')
    assert rundir.load(folder.path).ledger == again.ledger, "killed while the ledger was written"


def test_a_run_that_died_before_its_zero_has_no_ledger(tmp_path: Path) -> None:
    run = report_run.run()
    folder = RunDir.create("p", NOW, out=tmp_path / "run")
    folder.write_manifest(rundir.manifest_of(run.profile, run.plan, "live", NOW))
    folder.provider_ledger_path.write_text('{"call": 0, "arrived_ns": 5, "ending": "completed"}\n')
    again = rundir.load(folder.path)
    assert (again.ledger, again.ledger_available) == ([], False)


def test_a_finished_run_without_its_health_is_damaged(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    folder.health_path.unlink()
    with pytest.raises(RunFolderError, match=r"generator\.json: missing"):
        rundir.load(folder.path)


def test_a_plan_that_is_drawn_otherwise_today_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    manifest = json.loads(folder.manifest_path.read_text())
    manifest["fingerprint"] = "0" * 64
    folder.manifest_path.write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match=r"another version \(agentload 0\.1\.0\)"):
        rundir.load(folder.path)


def test_another_seed_draws_another_plan(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    manifest = json.loads(folder.manifest_path.read_text()) | {"seed": 8}
    folder.manifest_path.write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match="fingerprint"):
        rundir.load(folder.path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no manifest\.json"),
        ("{", r"manifest\.json: damaged"),
        ("[1, 2]", r"manifest\.json: damaged"),
        ('{"schema": 2}', "schema 2, this version reads 1"),
        ("{}", "schema None"),
        ('{"schema": 1}', r"manifest\.json: damaged"),
    ],
)
def test_what_is_not_a_run_folder_is_said_in_one_line(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        rundir.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such folder"):
        rundir.load(tmp_path / "nowhere")


def test_a_profile_that_no_longer_fits_is_said_with_its_place(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run")
    manifest = json.loads(folder.manifest_path.read_text())
    manifest["profile"]["tenants"][1]["weight"] = -1
    folder.manifest_path.write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match=r"profile\.tenants\.1\.weight"):
        rundir.load(folder.path)


def test_secrets_do_not_reach_the_folder(tmp_path: Path) -> None:
    run = report_run.run()
    folder = RunDir.create("p", NOW, out=tmp_path / "run")
    target = {
        "templates": [["Authorization", "Bearer hunter2"], ["X-Api-Key", "hunter2"]],
        "url": "http://me:hunter2@h/",
    }
    command = ["agentload", "run", "--target", "http://me:hunter2@localhost"]
    manifest = rundir.manifest_of(run.profile, run.plan, "live", NOW, target=target, command=command)
    folder.write_manifest(manifest)
    folder.finish(manifest, run)
    folder.write_health(run.health)
    assert "hunter2" not in folder.manifest_path.read_text()
    assert "hunter2" not in str(rundir.load(folder.path).meta)


def test_a_folder_that_may_not_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        RunDir.create("p", NOW, reports=tmp_path / "file")


# --------------------------------------------------------------------------- the provider's ledger


def test_provider_entries_get_names_and_the_runs_clock() -> None:
    raw = {
        "call": 3,
        "tenant": 1,
        "seq": 77,
        "attempt": 2,
        "arrived_ns": 105 * NS,
        "started_ns": 106 * NS,
        "ended_ns": None,
        "queued_ns": None,
        "ending": "open",
        "charged_tokens": 48,
        "a_field_of_a_newer_provider": True,
    }
    (entry,) = provider_records.ledger_from_provider([raw], ["a", "b"], 100 * NS)
    assert (entry.tenant, entry.seq, entry.attempt, entry.call) == ("b", 77, 2, 3)
    assert (entry.arrived_ns, entry.started_ns, entry.ended_ns) == (5 * NS, 6 * NS, None)
    assert entry.ending is CallEnding.OPEN
    assert entry.charged_tokens == 48


@pytest.mark.parametrize("tenant", [None, -1, 2, 65535])
def test_a_tenant_number_never_given_out_is_no_marker(tenant: int | None) -> None:
    raw = {"call": 0, "tenant": tenant, "seq": 5, "attempt": 0, "arrived_ns": 1, "ending": "completed"}
    (entry,) = provider_records.ledger_from_provider([raw], ["a", "b"], 0)
    assert (entry.tenant, entry.seq, entry.attempt) == (None, None, None)


def test_ledger_entries_survive_the_way_over_the_providers_json() -> None:
    run, t0_ns = report_run.run(), 987_654_321
    names = [tenant.name for tenant in run.profile.tenants]
    raw = as_the_provider_says(run, t0_ns)
    assert provider_records.ledger_from_provider(raw, names, t0_ns) == run.ledger[:50]


def as_the_provider_says(run: Run, t0_ns: int) -> list[dict[str, Any]]:
    """The first 50 calls with tenants as numbers and times on the provider's clock."""
    numbers = {tenant.name: number for number, tenant in enumerate(run.profile.tenants)}
    raw: list[dict[str, Any]] = []
    for entry in run.ledger[:50]:
        values = msgspec.to_builtins(entry)
        values["tenant"] = numbers[values["tenant"]]
        raw.append({k: v + t0_ns if k.endswith("_ns") else v for k, v in values.items()})
    return raw


@pytest.mark.parametrize(
    ("error", "kept", "said"),
    [
        (UnreachableError("the target answered 401"), False, "is removed"),
        (KeyboardInterrupt(), False, "is removed"),
        (UnreachableError("the gateway ended (its log: {folder}/logs/gateway.log)"), True, ""),
        (InconclusiveError("worker 0: it cannot import"), True, "logged: {folder}/logs"),
    ],
)
def test_a_run_that_never_began_leaves_no_folder_but_for_its_logs(
    error: BaseException, kept: bool, said: str, tmp_path: Path
) -> None:
    folder = RunDir.create("steady", NOW, out=tmp_path / "run")
    (folder.path / "manifest.json").write_text("{}")
    (folder.path / "samples.jsonl").touch()
    if isinstance(error, AgentloadError):
        error = type(error)(error.lines[0].format(folder=folder.path))
    assert said.format(folder=folder.path) in clear_away(folder, error)
    assert folder.path.exists() == kept


def test_a_folder_with_a_record_in_it_is_never_cleared_away(tmp_path: Path) -> None:
    folder = RunDir.create("steady", NOW, out=tmp_path / "run")
    folder.records_path.write_text("{}\n")
    assert clear_away(folder, UnreachableError("gone")) == ""
    assert folder.records_path.exists()
