"""The composition root of a live run: profile → plan → stage → load → judge → reports → exit code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from agentload import calibration, checks, rundir, screen
from agentload.circumstances import bundled, circumstances
from agentload.conclusion import Conclusion, conclude
from agentload.errors import UsageError
from agentload.interrupts import interruptible
from agentload.model import NS, Run
from agentload.order import Options, Prepared, prepare
from agentload.profile import slots_beyond_provider
from agentload.recording import Recording
from agentload.report import text
from agentload.rundir import RunDir, RunFolderError
from agentload.rundir.unbegun import clear_away

__all__ = ["Options", "judge_folder", "prepare", "record", "run"]

VERSIONS_OF = ("locust", "gevent", "httptools", "hdrhistogram", "starlette", "uvicorn", "aiohttp")


def run(options: Options) -> int:
    """One live run from options to exit code. Raises AgentloadError (one line) when it cannot be made."""
    console = screen.console()
    options, prepared = calibration.settle(options, prepare(options), console)
    return record(options, prepared, console).exit_code


def record(options: Options, prepared: Prepared, console: Console) -> Conclusion:
    """One live run, recorded, judged and shown."""
    target = bundled(options.mutant) if prepared.target is None else prepared.target.to_dict()
    made = circumstances(options.command, target, VERSIONS_OF)
    started = datetime.now()
    folder = RunDir.create(prepared.profile.name, started, out=options.out)
    manifest = rundir.manifest_of(
        prepared.profile, prepared.plan, "live", started, scale=prepared.scale, **made
    )
    folder.write_manifest(manifest)
    recording = Recording(options, prepared, folder, manifest, console)
    with interruptible(recording.way_out.on_signal):
        console.print(f"{prepared.profile.name}: {text.printable(prepared.profile.about)}")
        console.print(
            f"plan {prepared.plan.fingerprint[:12]}, seed {prepared.plan.seed}, "
            f"{prepared.profile.duration_ns / NS:g} s, into {folder.path}",
            soft_wrap=True,
        )
        if prepared.scale is not None:
            console.print(text.scale_line(prepared.scale, why=False), soft_wrap=True)
        for warning in prepared.warnings:
            screen.warn(console, text.printable(warning))
        if prepared.target is None and (beyond := slots_beyond_provider(prepared.profile)):
            screen.warn(console, beyond)
        _make(recording, console)
        return conclude(
            folder,
            console,
            ended_by=recording.ended_by,
            inconclusive_passes=options.inconclusive_passes,
        )


def _make(recording: Recording, console: Console) -> None:
    """The recording; where it ends before any load, no empty folder stays behind."""
    try:
        recording.make()
    except BaseException as error:
        if not recording.manifest.t0_ns and (line := clear_away(recording.folder, error)):
            console.print(line, soft_wrap=True)
        raise


def judge_folder(path: Path, *, inconclusive_passes: bool) -> int:
    """Decide again from what a run left behind.

    Raises RunFolderError, before anything is written, for a folder that cannot be judged here.
    """
    console = screen.console()
    recorded = rundir.load(path)
    _refuse_unknown_checks(path, recorded)
    concluded = conclude(RunDir(path), console, recorded=recorded, inconclusive_passes=inconclusive_passes)
    return concluded.exit_code


def _refuse_unknown_checks(path: Path, recorded: Run) -> None:
    """A check from a plug-in that is not at hand must not cost the folder its good reports."""
    for spec in recorded.profile.checks:
        try:
            checks.make(spec)
        except (UsageError, ValidationError) as error:
            known = spec.kind in checks.SEAM.names()
            because = "its parameters do not fit" if known else str(error)
            plugins = _plugins_of(recorded.meta["command"])
            mend = f"judge it with {plugins}" if plugins else "judge it with the version that recorded it"
            raise RunFolderError(
                f"{path}: its check '{spec.kind}' cannot be made here ({because}): {mend}"
            ) from error


def _plugins_of(command: Sequence[str]) -> str:
    """The `--plugins DIR` of a command line; empty where it had none."""
    given: list[str] = []
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == "--plugins":
            given += [word, following]
        elif word.startswith("--plugins="):
            given.append(word)
    return shlex.join(given)
