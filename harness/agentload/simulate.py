"""The composition root of a simulated run: profile → plan → virtual time → judge → reports → exit code."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import Console

from agentload import plan, profile, progress, rundir, screen
from agentload.circumstances import bundled, circumstances
from agentload.conclusion import conclude
from agentload.drivers.simulated.latency_log import write_latencies
from agentload.drivers.simulated.network import Timing
from agentload.drivers.simulated.parts import Parts
from agentload.drivers.simulated.recording import DRIVER, Recording, refuse_own_code
from agentload.garbage import collect_seldom
from agentload.interrupts import interruptible
from agentload.model import NS, Plan, Profile, Run
from agentload.profile import scale
from agentload.report import text
from agentload.rundir import Manifest, RunDir, storage_error


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as typed."""

    profile: str
    policy: str | None = None
    mutant: str | None = None
    """A safeguard that is switched off in the gateway."""
    seed: int | None = None
    seeds: int = 1
    """So many consecutive seeds; 1: a run with all its reports."""
    out: Path | None = None
    settings: tuple[str, ...] = ()
    quick: bool = False
    scale: str | None = None
    """A factor; None: 1."""
    inconclusive_passes: bool = False
    command: tuple[str, ...] = ()


def simulate(
    chosen: Profile,
    seed: int,
    *,
    policy: str | None = None,
    parts: Parts | None = None,
    timing: Timing | None = None,
) -> Run:
    """One run in virtual time. Pure: equal arguments give equal runs, to the nanosecond, in every process.

    `policy` replaces the profile's; `parts` replaces safeguards of the gateway, the provider or the clients.
    Raises UsageError for a policy that does not exist, InvariantError when something happens that never can.
    """
    chosen = with_policy(chosen, policy)
    return Recording(chosen, plan.draw(chosen, seed), parts, timing).record()


def with_policy(chosen: Profile, policy: str | None) -> Profile:
    """The profile with another policy of the bundled gateway."""
    if policy is None:
        return chosen
    return chosen.model_copy(update={"gateway": chosen.gateway.model_copy(update={"policy": policy})})


def run(options: Options) -> int:
    """`agentload simulate`, from options to exit code. Raises AgentloadError (one line)."""
    console = screen.console()
    chosen, seed = prepare(options)
    if options.seeds > 1:
        from agentload import seed_sweep

        return seed_sweep.run(options, chosen, seed, console)
    return _run_one(options, chosen, plan.draw(chosen, seed), console)


def prepare(options: Options) -> tuple[Profile, int]:
    """The profile as asked for, and the (first) seed. Raises AgentloadError."""
    settings = list(options.settings)
    if options.policy is not None:
        settings.append(f"gateway.policy={options.policy}")
    chosen = profile.load(profile.find(options.profile), settings)
    refuse_own_code(chosen)
    parts_of(options.mutant)
    chosen = scale.scaled_as(chosen, options.scale)
    if options.quick:
        chosen = profile.quick(chosen)
    return chosen, chosen.seed if options.seed is None else options.seed


def parts_of(mutant: str | None) -> Parts | None:
    """The parts of a mutant by name; None for the reference. Raises UsageError."""
    if mutant is None:
        return None
    from agentload import mutants

    return mutants.parts_of(mutant)


# --------------------------------------------------------------------------- one run


def _run_one(options: Options, chosen: Profile, drawn: Plan, console: Console) -> int:
    collect_seldom()
    recording = Recording(chosen, drawn, parts_of(options.mutant))
    started = datetime.now()
    folder = RunDir.create(chosen.name, started, out=options.out)
    made = circumstances(options.command, bundled(options.mutant))
    manifest = rundir.manifest_of(chosen, drawn, DRIVER, started, scale=_how_scaled(options), **made)
    with interruptible(recording.stop):
        console.print(f"{chosen.name}: {text.printable(chosen.about)}")
        console.print(
            f"plan {drawn.fingerprint[:12]}, seed {drawn.seed}, "
            f"{chosen.duration_ns / NS:g} s of virtual time, into {folder.path}",
            soft_wrap=True,
        )
        if beyond := profile.slots_beyond_provider(chosen):
            screen.warn(console, beyond)
        with progress.told(lambda: console.print(_progress(recording), style="dim")):
            recorded = recording.record()
        _write_down(folder, manifest, recorded, started)
        recorded.meta |= rundir.meta(manifest) | {"digest": recorded.meta["digest"]}
        conclusion = conclude(
            folder, console, recorded=recorded, inconclusive_passes=options.inconclusive_passes
        )
    console.print(f"  digest {recorded.meta['digest']}", style="dim")
    return conclusion.exit_code


def _how_scaled(options: Options) -> dict[str, float] | None:
    """For the manifest; None where nothing was scaled."""
    factor = scale.factor_of(options.scale)
    if factor is None or factor == 1:
        return None
    return scale.facts(profile.load(profile.find(options.profile), options.settings), factor)


def _progress(recording: Recording) -> str:
    world, whole_s = recording.world, recording.profile.duration_ns / NS
    return (
        f"  {world.kernel.now_ns / NS:.1f} of {whole_s:g} s simulated, {world.clients.scheduled:,} requests"
    )


def _write_down(folder: RunDir, manifest: Manifest, recorded: Run, started: datetime) -> None:
    folder.save(recorded, manifest)
    try:
        with folder.latency_log.open("w", encoding="utf-8") as stream:
            write_latencies(recorded.profile, recorded.records, stream, started.timestamp())
    except OSError as error:
        raise storage_error(error, folder.latency_log, "") from error
