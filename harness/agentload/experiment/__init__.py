"""The composition root of a published experiment: arms → virtual time → measures → expectations → exit code.

Leaves `experiment.json`; each run in it has the plan's fingerprint and the digest of all its events, so that
anybody can have it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import Console

from agentload import experiments, progress, screen
from agentload.conclusion import exit_code_of
from agentload.errors import ExitCode
from agentload.experiment import facts, show
from agentload.experiment.play import Play, Played, found_of
from agentload.interrupts import interruptible
from agentload.model import worst
from agentload.report import terminal
from agentload.rundir import new_folder, write_file


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as typed."""

    experiment: str
    seed: int = 1
    seeds: int | None = None
    """None: as many as the experiment needs."""
    out: Path | None = None
    inconclusive_passes: bool = False
    command: tuple[str, ...] = ()


def run(options: Options) -> int:
    """`agentload experiment`, from options to exit code. Raises AgentloadError (one line)."""
    chosen = experiments.SEAM.get(options.experiment)()
    seeds = range(options.seed, options.seed + (chosen.seeds if options.seeds is None else options.seeds))
    play = Play(chosen, seeds)
    console = screen.console()
    terminal.never_fail_on_letters(console)
    folder = new_folder(options.experiment, datetime.now(), out=options.out)
    with interruptible(play.stop):
        show.print_opening(options.experiment, chosen, play.arms, play.planned, folder, console)
        with progress.told(lambda: console.print(play.progress(), style="dim")):
            played = list(play.runs())
        return _conclude(options, play, played, folder, console)


def _conclude(
    options: Options, play: Play, played: Sequence[Played], folder: Path, console: Console
) -> ExitCode:
    found = found_of(play.arms, play.seeds, played)
    expectations = play.experiment.expect(found) if found.seeds else []
    status = worst([one.status for one in expectations])
    whole = facts.summarise(options.experiment, options.command, play, played, expectations)
    path = folder / "experiment.json"
    write_file(path, msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
    by_arm = {arm.name: [one.measures for one in played if one.arm == arm.name] for arm in play.arms}
    show.print_result(play.experiment.columns, by_arm, expectations, console)
    if play.stopped:
        console.print(f"\ninterrupted after {len(played)} of {play.planned} runs\n  {path}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    show.print_overall(options.experiment, status, found.seeds, path, console)
    return exit_code_of(status, inconclusive_passes=options.inconclusive_passes)
