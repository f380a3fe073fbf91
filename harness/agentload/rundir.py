"""The folder a run leaves behind: written while it runs, so that a crash loses a line and not a run.

    manifest.json    what was run: profile, seed, driver, target, versions, command line, plan fingerprint
    records.jsonl    one RequestRecord per line, one per attempt
    ledger.jsonl     one LedgerEntry per line, on the run's clock
    samples.jsonl    one Sample per line
    jobs.jsonl       one JobRecord per line, where the profile has durable jobs
    tools.jsonl      one ToolRecord per line, likewise
    generator.json   GeneratorHealth, written at the end
    latency.hlog     HdrHistogram V2 log, written by the driver
    logs/            what the processes said

`load` reads it back for `agentload judge`: the plan is not stored but drawn again from profile and seed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, cast

import msgspec
from pydantic import ValidationError

from agentload import plan as planning
from agentload.clock_alignment import ClockAlignment
from agentload.errors import UsageError
from agentload.model import (
    NS,
    Distribution,
    GaugeReadings,
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
from agentload.provider_records import ledger_from_provider
from agentload.redaction import without_secrets
from agentload.storage import (
    DamagedFileError,
    JsonLines,
    StorageError,
    count_lines,
    read_json,
    read_lines,
    storage_error,
    write_file,
)
from agentload.targets._declares import as_declared
from agentload.targets._metrics import values_named

__all__ = [
    "DamagedFileError",
    "JsonLines",
    "Manifest",
    "RunDir",
    "RunFolderError",
    "StorageError",
    "load",
    "manifest_of",
    "meta",
    "read_manifest",
    "storage_error",
    "write_file",
]

SCHEMA = 1
"""Version of the folder's layout; another one is refused rather than misread."""


class Manifest(msgspec.Struct, kw_only=True):
    """What was run. Written at the start, completed at the end (`finished`)."""

    schema: int = SCHEMA
    profile: dict[str, Any]
    seed: int
    driver: str
    """live | simulated"""
    fingerprint: str
    """Of the plan; the plan drawn again must have the same."""
    arrivals: int
    started: str
    """Wall-clock time of the run's zero, ISO 8601 with offset."""
    t0_ns: int = 0
    """The monotonic clock at the run's zero; 0 for a simulated run."""
    target: dict[str, Any] = msgspec.field(default_factory=dict)
    command: list[str] = msgspec.field(default_factory=list)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    machine: dict[str, Any] = msgspec.field(default_factory=dict)
    finished: bool = False
    unattributed: int = 0
    ledger_available: bool = True
    no_ledger_because: str = ""
    """Why the run has no ledger, in words, where there is more to say than that it died."""
    provider_clock: ClockAlignment | None = None
    """Of a provider with another monotonic clock than ours; the ledger is on the run's clock already."""
    gauges: GaugeReadings | None = None
    """How well the gateway's own values could be read; None where nobody read them, or before the end."""
    interrupted: str | None = None
    scale: dict[str, Any] | None = None
    """By what the profile was scaled, and why; None: it was not."""
    digest: str | None = None
    """Of every event of a simulated run; None for a live one, which never happens twice."""
    lines: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """File → lines, counted when the run was finished: a file that was cut or doubled since is found out."""


class RunFolderError(UsageError):
    """Not a run folder, a damaged one, or one of another version."""


# --------------------------------------------------------------------------- writing


class RunDir:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest_path = path / "manifest.json"
        self.records_path = path / "records.jsonl"
        self.ledger_path = path / "ledger.jsonl"
        self.samples_path = path / "samples.jsonl"
        self.jobs_path = path / "jobs.jsonl"
        self.tools_path = path / "tools.jsonl"
        self.health_path = path / "generator.json"
        self.latency_log = path / "latency.hlog"
        self.logs = path / "logs"
        self.provider_ledger_path = self.logs / "provider-ledger.jsonl"

    @classmethod
    def create(
        cls, profile_name: str, now: datetime, *, out: Path | None = None, reports: Path | None = None
    ) -> Self:
        """A new, empty folder: `out`, or `<reports>/<profile>-<YYYYmmdd-HHMMSS>` made unique with -2, -3 …

        Raises UsageError when `out` holds something already, StorageError when it cannot be made.
        """
        folder = cls(new_folder(profile_name, now, out=out, reports=reports))
        make_folder(folder.logs)
        return folder

    def records(self) -> JsonLines:
        """A writer for RequestRecords."""
        return JsonLines(self.records_path)

    def ledger(self) -> JsonLines:
        """A writer for LedgerEntries."""
        return JsonLines(self.ledger_path)

    def samples(self) -> JsonLines:
        """A writer for Samples."""
        return JsonLines(self.samples_path)

    def jobs(self) -> JsonLines:
        """A writer for JobRecords."""
        return JsonLines(self.jobs_path)

    def tools(self) -> JsonLines:
        """A writer for ToolRecords."""
        return JsonLines(self.tools_path)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write or replace the manifest; secrets in target and command line are blanked here for all."""
        safe = msgspec.structs.replace(
            manifest,
            target=cast(dict[str, Any], without_secrets(manifest.target)),
            command=cast(list[str], without_secrets(manifest.command)),
        )
        write_file(self.manifest_path, msgspec.json.format(msgspec.json.encode(safe), indent=2) + b"\n")

    def write_health(self, health: GeneratorHealth) -> None:
        """Write or replace generator.json."""
        write_file(self.health_path, msgspec.json.format(msgspec.json.encode(health), indent=2) + b"\n")

    def save(self, run: Run, manifest: Manifest) -> None:
        """Write a whole run at once, as the simulator does."""
        self.write_manifest(manifest)
        writers: list[tuple[JsonLines, Sequence[msgspec.Struct]]] = [
            (self.records(), run.records),
            (self.ledger(), run.ledger),
            (self.samples(), run.samples),
        ]
        writers += [(self.jobs(), run.jobs)] if run.jobs else []
        writers += [(self.tools(), run.tools)] if run.tools else []
        for writer, items in writers:
            with writer:
                writer.extend(items)
        self.write_health(run.health)
        self.finish(manifest, run)

    def finish(self, manifest: Manifest, run: Run) -> None:
        """Complete the manifest with what is known only at the end."""
        self.write_manifest(
            msgspec.structs.replace(
                manifest,
                finished=True,
                unattributed=run.unattributed,
                ledger_available=run.ledger_available,
                interrupted=run.interrupted,
                digest=run.meta.get("digest"),
                lines=self.lines(),
            )
        )

    def lines(self) -> dict[str, int]:
        """How many whole lines each evidence file has, by its name. Raises StorageError."""
        always = (self.records_path, self.ledger_path, self.samples_path)
        return {path.name: count_lines(path) for path in self._evidence if path in always or path.exists()}

    @property
    def _evidence(self) -> tuple[Path, ...]:
        return self.records_path, self.ledger_path, self.samples_path, self.jobs_path, self.tools_path

    def refuse_changed(self, manifest: Manifest) -> None:
        """Raises DamagedFileError when an evidence file no longer has the lines that were written."""
        for path in self._evidence:
            written = manifest.lines.get(path.name)
            found = count_lines(path) if written is not None else None
            if found != written:
                raise DamagedFileError(
                    f"{path}: holds {found:,} lines, {written:,} were written: it was changed since;"
                    " restore it, or run again"
                )


def new_folder(name: str, now: datetime, *, out: Path | None = None, reports: Path | None = None) -> Path:
    """A new, empty folder for a run or for several. Raises as `RunDir.create` does."""
    if out is not None:
        _refuse_occupied(out)
        folder = out
    else:
        folder = _unused((reports or Path("reports")) / f"{file_name(name)}-{now:%Y%m%d-%H%M%S}")
    make_folder(folder)
    return folder


def make_folder(folder: Path) -> None:
    """With its parents, if it is not there. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder, "") from error


def manifest_of(profile: Profile, plan: Plan, driver: str, started: datetime, **more: Any) -> Manifest:
    """The manifest of a run that begins; `more` are further Manifest fields (target, command, versions …)."""
    return Manifest(
        profile=profile.model_dump(mode="json", by_alias=True),
        seed=plan.seed,
        driver=driver,
        fingerprint=plan.fingerprint,
        arrivals=len(plan.arrivals),
        started=started.astimezone().isoformat(timespec="seconds"),
        **more,
    )


def _refuse_occupied(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--out {folder}: exists already and is not an empty folder; choose another")


def _unused(folder: Path) -> Path:
    candidate, attempt = folder, 1
    while candidate.exists():
        attempt += 1
        candidate = folder.with_name(f"{folder.name}-{attempt}")
    return candidate


def file_name(name: str) -> str:
    """The name as a file or folder may have it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


# --------------------------------------------------------------------------- reading


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
    calls = ledger_from_provider(raw, names, manifest.t0_ns)
    # Before the run's zero lies the request that tried whether the target is there.
    return [call for call in calls if call.arrived_ns >= 0], torn


def _interrupted(manifest: Manifest, recovered: bool) -> str | None:
    if manifest.finished:
        return manifest.interrupted
    because = manifest.interrupted or "its process died before the end"
    return f"{because}; the ledger is what the provider wrote down by itself" if recovered else because


def meta(manifest: Manifest) -> dict[str, Any]:
    """What a report says about where a run comes from: `Run.meta`."""
    return {
        "started": manifest.started,
        "command": without_secrets(manifest.command),
        "target": without_secrets(manifest.target),
        "versions": manifest.versions,
        "machine": manifest.machine,
        "provider_clock": _clock_facts(manifest.provider_clock),
        "digest": manifest.digest,
        "scale": manifest.scale,
    }


def _clock_facts(clock: ClockAlignment | None) -> dict[str, float | bool | None] | None:
    """What a report says about the provider's clock; None where it is ours."""
    if clock is None:
        return None
    return {
        "ahead_s": round(clock.before.ahead_ns / NS, 6),
        "uncertainty_ms": round(clock.uncertainty_ns / 1e6, 3),
        "drift_ppm": round(clock.drift_ppm, 1) if clock.drift_told else None,
        "steady": clock.steady,
    }


def read_manifest(path: Path) -> Manifest:
    """The manifest of a folder. Raises RunFolderError."""
    file = path / "manifest.json"
    if not path.is_dir():
        raise RunFolderError(f"{path}: no such folder")
    if not file.exists():
        raise RunFolderError(f"{path}: is not a run folder: it holds no manifest.json")
    schema = read_json(file, dict[str, Any]).get("schema")
    if schema != SCHEMA:
        raise RunFolderError(
            f"{file}: schema {schema}, this version reads {SCHEMA}: use the version that wrote it"
        )
    return read_json(file, Manifest)


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
