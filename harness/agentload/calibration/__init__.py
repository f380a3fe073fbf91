"""`--scale auto`: a short ramp finds what the target carries, before the run. SHELL.

The ramp is a run like any other (the same stage, driver, workers and records), with a profile of its own, and
ended as soon as the target falls behind. `ramp.py`, `knee.py`, `demand.py` and `decision.py` are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console

from agentload import order, plan, rundir
from agentload.calibration import ramp
from agentload.calibration.decision import HEADROOM, MOST, Decision, decide
from agentload.calibration.demand import Demand, demand_of
from agentload.calibration.knee import Carried, carried
from agentload.errors import InconclusiveError, UsageError
from agentload.interrupts import interruptible
from agentload.model import NS, GeneratorHealth, Profile, RequestRecord
from agentload.order import Options, Prepared
from agentload.profile.scale import AUTO
from agentload.recording import Recording
from agentload.report.live_view import Progress
from agentload.rundir import RunDir
from agentload.storage import read_json, read_lines


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A profile to be scaled, and what it asks for as it stands."""

    profile: Profile
    demand: Demand


def settle(options: Options, prepared: Prepared, console: Console) -> tuple[Options, Prepared]:
    """`--scale auto` turned into the factor that it comes to; anything else is left as it is.

    Raises AgentloadError when the target cannot be reached, or carries too little for the profile.
    """
    if options.scale != AUTO:
        return options, prepared
    ask = asked(prepared)
    found = measure(options, prepared, [ask], console)
    return apply(options, decide(ask.profile, ask.demand, found), console)


def asked(prepared: Prepared) -> Ask:
    """What a prepared (unscaled) run asks for."""
    return Ask(profile=prepared.profile, demand=demand_of(prepared.profile, prepared.plan))


def apply(options: Options, decision: Decision, console: Console) -> tuple[Options, Prepared]:
    """The options with the factor in the place of `auto`, and what they come to."""
    factor = f"{decision.factor:.6g}"
    settled = msgspec.structs.replace(options, scale=factor, command=_with_factor(options.command, factor))
    prepared = order.prepare(settled)
    facts = {**(prepared.scale or {"factor": 1.0}), **decision.facts()}
    console.print(f"--scale {factor}: {decision.because}", soft_wrap=True)
    if prepared.target is not None and decision.advice:
        console.print(decision.advice, style="yellow", soft_wrap=True)
    return settled, msgspec.structs.replace(prepared, scale=facts)


def measure(options: Options, prepared: Prepared, asks: Sequence[Ask], console: Console) -> Carried:
    """The ramp, up to what the largest of the profiles could use.

    Raises InconclusiveError when nothing can be said, UnreachableError as a run does, KeyboardInterrupt.
    """
    _refuse(options, prepared)
    wanted = max(ask.demand.peak_per_s for ask in asks) * MOST / HEADROOM
    steps = ramp.rates(wanted if prepared.caps.rate is None else min(wanted, prepared.caps.rate))
    console.print(
        f"calibrating: {steps[0]:,.0f} to {steps[-1]:,.0f} requests/s in {len(steps) * ramp.STEP_S:g} s, "
        "or until the target falls behind",
        soft_wrap=True,
    )
    with TemporaryDirectory(prefix="agentload-calibration-") as folder:
        return _ramped(options, prepared, steps, RunDir(Path(folder)), console)


def _refuse(options: Options, prepared: Prepared) -> None:
    """Where a calibration would need what is not here, or cost what is not ours."""
    if options.expect_workers:
        raise UsageError(
            "--scale auto: calibrates with workers of its own; with --expect-workers say a factor, e.g. 0.25"
        )
    if prepared.target is not None and prepared.target.provider.external:
        raise UsageError(
            "--scale auto: calibrates with our provider behind the target; with somebody else's say a "
            "factor, e.g. 0.25"
        )


def _ramped(
    options: Options, prepared: Prepared, steps: Sequence[float], folder: RunDir, console: Console
) -> Carried:
    profile = ramp.profile_of(prepared.profile, steps)
    drawn = plan.draw(profile, prepared.plan.seed)
    whole = msgspec.structs.replace(prepared, profile=profile, plan=drawn)
    manifest = rundir.manifest_of(profile, drawn, "live", datetime.now())
    quiet = msgspec.structs.replace(options, mutant=None)
    recording = Recording(quiet, whole, folder, manifest, Console(quiet=True))
    watch = _Watch(recording, steps, ramp.service_s(profile))
    recording.view = watch
    rundir.make_folder(folder.logs)
    with interruptible(watch.interrupt):
        recording.make()
    if watch.interrupted:
        console.print("interrupted while calibrating: nothing was run")
        raise KeyboardInterrupt
    if recording.ended_by is not None:
        raise recording.ended_by
    records, _ = read_lines(folder.records_path, RequestRecord)
    if not records:
        raise InconclusiveError("--scale auto: the calibration sent nothing: is this machine too busy?")
    found = carried(ramp.steps_of(records, steps, watch.ended_ns))
    health = read_json(folder.health_path, GeneratorHealth)
    return msgspec.structs.replace(found, waited=round(health.run_queue_wait, 3))


class _Watch:
    """In the place of a live view: ends the ramp once it is hopeless."""

    def __init__(self, recording: Recording, steps: Sequence[float], service_s: float) -> None:
        self._recording, self._steps, self._service_s = recording, steps, service_s
        self.ended_ns: int | None = None
        self.interrupted = False
        self._in_doubt = False

    def update(self, progress: Progress) -> None:
        """Once is chance (a stall of this machine), twice is not."""
        if "elapsed_s" not in progress or self.ended_ns is not None:
            return
        doubtful, self._in_doubt = self._in_doubt, ramp.hopeless(progress, self._steps, self._service_s)
        if doubtful and self._in_doubt:
            self.ended_ns = round(float(progress["elapsed_s"]) * NS)
            self._recording.interrupt()

    def finish(self) -> None:
        """Nothing is shown."""

    def interrupt(self) -> None:
        """The user wants out."""
        self.interrupted = True
        self._recording.way_out.on_signal()


def _with_factor(command: Sequence[str], factor: str) -> tuple[str, ...]:
    """The command line that makes this run again, without another calibration."""
    words = [f"--scale={factor}" if word == f"--scale={AUTO}" else word for word in command]
    return tuple(
        factor if word == AUTO and place and words[place - 1] == "--scale" else word
        for place, word in enumerate(words)
    )
