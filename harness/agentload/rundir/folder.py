"""The folder a run writes: its files, and how a new one comes to be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from agentload.errors import UsageError
from agentload.model import GeneratorHealth, Run
from agentload.redaction import without_secrets
from agentload.rundir.manifest import Manifest
from agentload.storage import DamagedFileError, JsonLines, count_lines, storage_error, write_file


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
