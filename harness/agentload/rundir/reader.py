"""The run a folder holds, read back. The plan is not stored but drawn again from profile and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentload import plan as planning
from agentload.model import (
    Distribution,
    GeneratorHealth,
    JobRecord,
    LedgerEntry,
    Plan,
    Profile,
    RequestRecord,
    Run,
    Sample,
    ToolRecord,
)
from agentload.promises import Promises
from agentload.provider_records import StrangeRecordError, ledger_from_provider
from agentload.rundir.folder import RunDir
from agentload.rundir.manifest import Manifest, RunFolderError, meta, read_manifest
from agentload.storage import DamagedFileError, read_json, read_lines
from agentload.targets._declares import as_declared, hears_departures
from agentload.targets._metrics import values_named


def load(path: Path) -> Run:
    """The run a folder holds, ready to be judged again.

    A torn last line (a crash in the middle of a write) is skipped and counted in `health.records_lost`;
    anything worse is a RunFolderError or DamagedFileError of one line. A run whose process died has no ledger
    yet; it is made of the lines that the provider wrote down by itself.
    """
    folder = RunDir(path)
    manifest = read_manifest(path)
    profile = _profile(folder.manifest_path, manifest)
    folder.refuse_changed(manifest)
    records, torn = read_lines(folder.records_path, RequestRecord)
    ledger, torn_calls = _ledger(folder, profile, manifest)
    recovered = bool(ledger) and not manifest.finished
    samples, torn_samples = read_lines(folder.samples_path, Sample)
    jobs, torn_jobs = read_lines(folder.jobs_path, JobRecord)
    tools, torn_tools = read_lines(folder.tools_path, ToolRecord)
    health = _health(folder.health_path, manifest, records)
    health.records_lost += torn
    declared, promises = _as_declared(folder.manifest_path, profile, manifest)
    return Run(
        profile=declared,
        plan=_plan(path, profile, manifest),
        driver=manifest.driver,
        records=records,
        ledger=ledger,
        samples=samples,
        jobs=sorted(jobs, key=lambda job: job.seq),
        tools=tools,
        health=health,
        unattributed=sum(call.tenant is None for call in ledger) if recovered else manifest.unattributed,
        ledger_available=manifest.ledger_available and (manifest.finished or recovered),
        no_ledger_because=manifest.no_ledger_because,
        clock_uncertainty_ns=0 if manifest.provider_clock is None else manifest.provider_clock.uncertainty_ns,
        health_page="host" not in manifest.target or manifest.target.get("health") is not None,
        hears_departures=hears_departures(manifest.target),
        interrupted=_interrupted(manifest, recovered),
        gauges=manifest.gauges,
        promises=promises,
        shows=values_named(manifest.target),
        meta=meta(manifest) | {"torn_lines": torn + torn_calls + torn_samples + torn_jobs + torn_tools},
    )


def _ledger(folder: RunDir, profile: Profile, manifest: Manifest) -> tuple[list[LedgerEntry], int]:
    """The ledger, and how many torn lines were skipped.

    It is fetched when the run is over: one that died has none, or half of one, but the provider's own file.
    """
    if manifest.finished:
        return read_lines(folder.ledger_path, LedgerEntry)
    if not manifest.t0_ns:
        return [], 0
    raw, torn = read_lines(folder.provider_ledger_path, dict[str, Any])
    names = [tenant.name for tenant in profile.tenants]
    try:
        calls = ledger_from_provider(raw, names, manifest.t0_ns)
    except StrangeRecordError as error:
        raise DamagedFileError(f"{folder.provider_ledger_path}: damaged") from error
    # Before the run's zero lies the request that tried whether the target is there.
    return [call for call in calls if call.arrived_ns >= 0], torn


def _interrupted(manifest: Manifest, recovered: bool) -> str | None:
    if manifest.finished:
        return manifest.interrupted
    because = manifest.interrupted or "its process died before the end"
    return f"{because}; the ledger is what the provider wrote down by itself" if recovered else because


def _profile(file: Path, manifest: Manifest) -> Profile:
    try:
        return Profile.model_validate(manifest.profile)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("profile", *first["loc"]))
        raise RunFolderError(f"{file}: {where}: {first['msg']}") from error


def _as_declared(file: Path, profile: Profile, manifest: Manifest) -> tuple[Profile, Promises | None]:
    """What is judged is what the target promises, where that is known."""
    try:
        return as_declared(profile, manifest.target)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("target", "declares", *first["loc"]))
        raise RunFolderError(f"{file}: {where}: {first['msg']}") from error


def _plan(path: Path, profile: Profile, manifest: Manifest) -> Plan:
    plan = planning.draw(profile, manifest.seed)
    if plan.fingerprint != manifest.fingerprint:
        wrote = manifest.versions.get("agentload", "an unknown version")
        raise RunFolderError(
            f"{path}: its plan has fingerprint {manifest.fingerprint[:12]}, drawn again it is "
            f"{plan.fingerprint[:12]}: the folder comes from another version (agentload {wrote}); "
            "judge it with that one"
        )
    return plan


def _health(file: Path, manifest: Manifest, records: list[RequestRecord]) -> GeneratorHealth:
    """generator.json, or for a run that died before it was written: what is known, and not to be trusted."""
    if file.exists():
        return read_json(file, GeneratorHealth)
    if manifest.finished and manifest.interrupted is None:
        raise RunFolderError(f"{file}: missing: the folder is damaged")
    return GeneratorHealth(
        scheduled=manifest.arrivals,
        issued=sum(1 for record in records if record.attempt == 0),
        lateness_ms=Distribution(),
        trustworthy=False,
        reasons=["the run's process died before the generator's health was written"],
    )
