"""What was run: the folder's manifest.json, written at the start and completed at the end."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from agentload.clock_alignment import ClockAlignment
from agentload.errors import UsageError
from agentload.model import NS, GaugeReadings, Plan, Profile
from agentload.redaction import without_secrets
from agentload.storage import read_json

SCHEMA = 1
"""Version of the folder's layout; another one is refused rather than misread."""


class RunFolderError(UsageError):
    """Not a run folder, a damaged one, or one of another version."""


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
