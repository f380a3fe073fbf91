"""The folder a run leaves behind: written while it runs, so that a crash loses a line and not a run.

    manifest.json    what was run: profile, seed, driver, target, versions, command line, plan fingerprint
    records.jsonl    one RequestRecord per line, one per attempt
    ledger.jsonl     one LedgerEntry per line, on the run's clock
    samples.jsonl    one Sample per line
    generator.json   GeneratorHealth, written at the end
    latency.hlog     HdrHistogram V2 log, written by the driver
    logs/            what the processes said

`load` reads it back for `agentload judge`: the plan is drawn again from the profile and the seed, never stored.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import msgspec
from pydantic import ValidationError

from agentload import plan as planning
from agentload.errors import AgentloadError, UsageError
from agentload.model import (
    CallEnding,
    Distribution,
    GeneratorHealth,
    LedgerEntry,
    Plan,
    Profile,
    RequestRecord,
    Run,
    Sample,
)

SCHEMA = 1
"""Version of the folder's layout; another one is refused rather than misread."""

T = TypeVar("T")


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
    interrupted: str | None = None


class RunFolderError(UsageError):
    """Not a run folder, a damaged one, or one of another version."""


class StorageError(AgentloadError):
    """The run folder cannot be written: disk full, no permission."""


# --------------------------------------------------------------------------- writing


class JsonLines:
    """Appends structs to a file, one JSON object per line; what `extend` has returned from survives a crash.

    Every call is one write to the operating system, so that two batches never interleave.
    """

    def __init__(self, path: Path) -> None:
        """Raises StorageError when the file cannot be opened."""
        self.path = path
        self.lines = 0
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise storage_error(error, path, "") from error

    def append(self, item: msgspec.Struct) -> None:
        """One line. Raises StorageError."""
        self.extend((item,))

    def extend(self, items: Iterable[msgspec.Struct]) -> None:
        """Many lines in one write. Raises StorageError, saying how many lines are safe."""
        encoded = [self._encoder.encode(item) for item in items]
        if encoded:
            try:
                _write_all(self._file.fileno(), b"\n".join(encoded) + b"\n")
            except OSError as error:
                raise storage_error(error, self.path, f" after {self.lines} lines") from error
            self.lines += len(encoded)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def storage_error(error: OSError, path: Path, detail: str) -> StorageError:
    """An OSError in one line that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"{path}: the disk is full{detail}: free some space, or choose another folder with --out"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{path}: may not be written{detail}: choose another folder with --out")
    return StorageError(f"{path}: cannot be written{detail}: {error.strerror or error}")


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new, never half. Raises StorageError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise storage_error(error, path, "") from error


def _write_all(descriptor: int, data: bytes) -> None:
    """`os.write` may take only a part, a full disk above all."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class RunDir:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, profile_name: str, now: datetime, *, out: Path | None = None, reports: Path | None = None
    ) -> Self:
        """A new, empty folder: `out`, or `<reports>/<profile>-<YYYYmmdd-HHMMSS>` made unique with -2, -3 …

        Raises UsageError when `out` holds something already, StorageError when it cannot be made.
        """
        if out is not None:
            _refuse_occupied(out)
            folder = out
        else:
            folder = _unused((reports or Path("reports")) / f"{_file_name(profile_name)}-{now:%Y%m%d-%H%M%S}")
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, folder, "") from error
        return cls(folder)

    @property
    def manifest_path(self) -> Path:
        return self.path / "manifest.json"

    @property
    def records_path(self) -> Path:
        return self.path / "records.jsonl"

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def samples_path(self) -> Path:
        return self.path / "samples.jsonl"

    @property
    def health_path(self) -> Path:
        return self.path / "generator.json"

    @property
    def latency_log(self) -> Path:
        return self.path / "latency.hlog"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def records(self) -> JsonLines:
        """A writer for RequestRecords."""
        return JsonLines(self.records_path)

    def ledger(self) -> JsonLines:
        """A writer for LedgerEntries."""
        return JsonLines(self.ledger_path)

    def samples(self) -> JsonLines:
        """A writer for Samples."""
        return JsonLines(self.samples_path)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write or replace the manifest. Secrets in target and command line are blanked here, once for all."""
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
        writers = ((self.records(), run.records), (self.ledger(), run.ledger), (self.samples(), run.samples))
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
            )
        )


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


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


# --------------------------------------------------------------------------- secrets

_SECRET_NAME = re.compile(
    r"(authorization|cookie|secret|password|credential|api[-_]?key|token|(^|[-_])key)$", re.I
)
_SECRET_TEXT = re.compile(r"(?i)(bearer\s+|\bsk-|://[^/\s:@]*:)[^\s@'\"]+")


def without_secrets(value: object) -> object:
    """A copy in which values of secret-sounding names, bearer tokens, `sk-…` keys and URL passwords are `***`."""
    if isinstance(value, Mapping):
        pairs = cast(Mapping[object, object], value)
        return {
            k: "***" if v and _SECRET_NAME.search(str(k)) else without_secrets(v) for k, v in pairs.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in cast(Sequence[object], value)]
    return _SECRET_TEXT.sub(r"\1***", value) if isinstance(value, str) else value


# --------------------------------------------------------------------------- reading


def load(path: Path) -> Run:
    """The run a folder holds, ready to be judged again.

    A torn last line (a crash in the middle of a write) is skipped and counted in `health.records_lost`; anything
    worse is a RunFolderError of one line.
    """
    folder = RunDir(path)
    manifest = read_manifest(path)
    profile = _profile(folder.manifest_path, manifest)
    records, torn = read_lines(folder.records_path, RequestRecord)
    ledger, torn_calls = read_lines(folder.ledger_path, LedgerEntry)
    samples, torn_samples = read_lines(folder.samples_path, Sample)
    health = _health(folder.health_path, manifest, records)
    health.records_lost += torn
    return Run(
        profile=profile,
        plan=_plan(path, profile, manifest),
        driver=manifest.driver,
        records=records,
        ledger=ledger,
        samples=samples,
        health=health,
        unattributed=manifest.unattributed,
        ledger_available=manifest.ledger_available and manifest.finished,
        interrupted=manifest.interrupted
        or (None if manifest.finished else "its process died before the end"),
        meta=meta(manifest) | {"torn_lines": torn + torn_calls + torn_samples},
    )


def meta(manifest: Manifest) -> dict[str, Any]:
    """What a report says about where a run comes from: `Run.meta`."""
    return {
        "started": manifest.started,
        "command": without_secrets(manifest.command),
        "target": without_secrets(manifest.target),
        "versions": manifest.versions,
        "machine": manifest.machine,
    }


def read_manifest(path: Path) -> Manifest:
    """The manifest of a folder. Raises RunFolderError."""
    file = path / "manifest.json"
    if not path.is_dir():
        raise RunFolderError(f"{path}: no such folder")
    if not file.exists():
        raise RunFolderError(f"{path}: is not a run folder: it holds no manifest.json")
    schema = _decode(file, dict[str, Any]).get("schema")
    if schema != SCHEMA:
        raise RunFolderError(
            f"{file}: schema {schema}, this version reads {SCHEMA}: use the version that wrote it"
        )
    return _decode(file, Manifest)


def read_lines(path: Path, kind: type[T]) -> tuple[list[T], int]:
    """Everything in a JSON-lines file, and how many torn lines were skipped (0 or 1). No file: nothing.

    Raises RunFolderError, with the line, for a line that is damaged though others follow it.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror or error}") from error
    torn = lines.pop()
    decoder = msgspec.json.Decoder(kind)
    items: list[T] = []
    for position, line in enumerate(lines, 1):
        try:
            items.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise RunFolderError(f"{path}:{position}: damaged: {error}") from error
    return items, 1 if torn else 0


def _decode(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise RunFolderError(f"{file}: cannot be read: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise RunFolderError(f"{file}: damaged: {error}") from error


def _profile(file: Path, manifest: Manifest) -> Profile:
    try:
        return Profile.model_validate(manifest.profile)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("profile", *first["loc"]))
        raise RunFolderError(f"{file}: {where}: {first['msg']}") from error


def _plan(path: Path, profile: Profile, manifest: Manifest) -> Plan:
    plan = planning.draw(profile, manifest.seed)
    if plan.fingerprint != manifest.fingerprint:
        wrote = manifest.versions.get("agentload", "an unknown version")
        raise RunFolderError(
            f"{path}: its plan has fingerprint {manifest.fingerprint[:12]}, drawn again it is {plan.fingerprint[:12]}: "
            f"the folder comes from another version (agentload {wrote}); judge it with that one"
        )
    return plan


def _health(file: Path, manifest: Manifest, records: list[RequestRecord]) -> GeneratorHealth:
    """generator.json, or for a run that died before it was written: what is known, and not to be trusted."""
    if file.exists():
        return _decode(file, GeneratorHealth)
    if manifest.finished:
        raise RunFolderError(f"{file}: missing: the folder is damaged")
    return GeneratorHealth(
        scheduled=manifest.arrivals,
        issued=sum(1 for record in records if record.attempt == 0),
        lateness_ms=Distribution(),
        trustworthy=False,
        reasons=["the run's process died before the generator's health was written"],
    )


# --------------------------------------------------------------------------- the provider's ledger

_TIMES = ("arrived_ns", "queued_ns", "started_ns", "ended_ns", "not_before_ns")
_FIELDS = frozenset(LedgerEntry.__struct_fields__)


def ledger_from_provider(
    entries: Iterable[Mapping[str, Any]], tenants: Sequence[str], t0_ns: int
) -> list[LedgerEntry]:
    """The provider's entries (tenant numbers, absolute monotonic times) with names and the run's clock.

    A tenant number that the run never gave out counts as no marker at all. Fields of a newer provider are ignored.
    """
    return [_ledger_entry(entry, tenants, t0_ns) for entry in entries]


def _ledger_entry(entry: Mapping[str, Any], tenants: Sequence[str], t0_ns: int) -> LedgerEntry:
    values = {name: value for name, value in entry.items() if name in _FIELDS}
    for name in _TIMES:
        if values.get(name) is not None:
            values[name] -= t0_ns
    index = values.get("tenant")
    known = isinstance(index, int) and 0 <= index < len(tenants)
    values["tenant"] = tenants[index] if known and index is not None else None
    if not known:
        values["seq"] = values["attempt"] = None
    values["ending"] = CallEnding(values["ending"])
    return LedgerEntry(**values)
