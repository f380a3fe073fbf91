"""The composition root of a live run: profile → plan → stage → load → judge → reports → exit code."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich.console import Console

from agentload import rundir
from agentload.circumstances import bundled, circumstances
from agentload.conclusion import Conclusion, conclude
from agentload.interrupts import interruptible
from agentload.model import NS
from agentload.order import Options, Prepared, prepare
from agentload.recording import Recording
from agentload.rundir import RunDir

__all__ = ["Options", "judge_folder", "prepare", "record", "run"]

VERSIONS_OF = ("locust", "gevent", "httptools", "hdrhistogram", "starlette", "uvicorn", "aiohttp")


def run(options: Options) -> int:
    """One live run from options to exit code. Raises AgentloadError (one line) when it cannot be made."""
    return record(options, prepare(options), Console(highlight=False)).exit_code


def record(options: Options, prepared: Prepared, console: Console) -> Conclusion:
    """One live run, recorded, judged and shown."""
    target = bundled(options.mutant) if prepared.target is None else prepared.target.to_dict()
    made = circumstances(options.command, target, VERSIONS_OF)
    started = datetime.now()
    folder = RunDir.create(prepared.profile.name, started, out=options.out)
    manifest = rundir.manifest_of(prepared.profile, prepared.plan, "live", started, **made)
    folder.write_manifest(manifest)
    recording = Recording(options, prepared, folder, manifest, console)
    with interruptible(recording.interrupt):
        console.print(
            f"{prepared.profile.name}: {prepared.profile.about}\n"
            f"plan {prepared.plan.fingerprint[:12]}, seed {prepared.plan.seed}, "
            f"{prepared.profile.duration_ns / NS:g} s, into {folder.path}",
            soft_wrap=True,
        )
        recording.make()
        return conclude(
            folder,
            console,
            ended_by=recording.ended_by,
            inconclusive_passes=options.inconclusive_passes,
        )


def judge_folder(path: Path, *, inconclusive_passes: bool) -> int:
    """Decide again from what a run left behind."""
    console = Console(highlight=False)
    return conclude(RunDir(path), console, inconclusive_passes=inconclusive_passes).exit_code
