"""One profile under every policy, side by side: what does each cost, and what does it lack?

A comparison and not a verdict: nothing is judged, and the exit code is 0 unless it was interrupted.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from statistics import median_low
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from agentload import progress, screen, simulate
from agentload.compare_policies.yardsticks import Yardsticks, measure, plain
from agentload.errors import ExitCode, UsageError
from agentload.garbage import collect_seldom
from agentload.interrupts import interruptible
from agentload.model import Profile
from agentload.report import terminal, text
from agentload.rundir import new_folder, write_file
from agentload.scheduler.policies import SEAM as POLICIES

PROCESSES = 2
LEGEND = """\
goodput: requests answered a second. p50, p99: from the intended start to the
answer; a request never answered is infinitely late. Jain, min share: what
tenants got of their entitlement, while there was contention (1: all of it).
gap: the largest difference in tokens per weight between tenants that always
had work waiting. queue age: the longest wait for service, at gateway or
provider. refused: requests that ended with 413, 429, 503 or 504."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    profile: str
    policies: tuple[str, ...] = ()
    """Empty: all there are."""
    seed: int | None = None
    seeds: int = 1
    """So many consecutive seeds; the table shows medians."""
    settings: tuple[str, ...] = ()
    quick: bool = False
    out: Path | None = None
    """Folder for policies.json; None: nothing is written."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One policy under one seed."""

    policy: str
    seed: int
    digest: str
    found: Yardsticks


def run(options: Options) -> int:
    """The command, from options to exit code. Raises AgentloadError (one line)."""
    chosen, first_seed = simulate.prepare(
        simulate.Options(
            profile=options.profile, seed=options.seed, settings=options.settings, quick=options.quick
        )
    )
    policies = select(options.policies, chosen.gateway.policy)
    folder = None
    if options.out is not None:
        folder = new_folder(f"{chosen.name}-policies", datetime.now(), out=options.out)
    seeds = range(first_seed, first_seed + options.seeds)
    console = screen.console()
    terminal.never_fail_on_letters(console)
    console.print(f"{chosen.name}: {text.printable(chosen.about)}")
    results = _play(screen.aside(), Comparison(chosen, policies, seeds))
    if folder is not None:
        write_file(folder / "policies.json", as_json(chosen, seeds, results))
    _show(console, results, folder)
    if len(results) < len(policies) * len(seeds):
        console.print(f"interrupted after {len(results)} of {len(policies) * len(seeds)} simulations")
        return ExitCode.INTERRUPTED
    return ExitCode.PASSED


def names_in(words: str | None) -> tuple[str, ...]:
    """`--policies a,b`. Raises UsageError for an empty name."""
    if words is None:
        return ()
    names = tuple(name.strip() for name in words.split(","))
    if not all(names):
        raise UsageError(f"--policies {words}: names are separated by single commas, e.g. sfq,fifo,none")
    return names


def select(asked: Sequence[str], own: str) -> list[str]:
    """The policies to compare, each once: as asked for, or all, `own` (the profile's) first.

    Raises UsageError for one that does not exist.
    """
    names = [*asked] or [own, *POLICIES.names()]
    for name in names:
        POLICIES.get(name)
    return [*dict.fromkeys(names)]


def measured(chosen: Profile, policy: str, seed: int) -> Result:
    """Simulate once, and measure."""
    recorded = simulate.simulate(chosen, seed, policy=policy)
    return Result(policy=policy, seed=seed, digest=recorded.meta["digest"], found=measure(recorded))


class Comparison:
    """Every policy under every seed, over at most two processes."""

    def __init__(self, chosen: Profile, policies: Sequence[str], seeds: Sequence[int]) -> None:
        self.chosen = chosen
        self.cases = [(policy, seed) for policy in policies for seed in seeds]
        self.done = 0
        self._stopped = False

    def results(self) -> Iterator[Result]:
        """As they come, policy by policy; ends early once `stop` was called."""
        processes = min(PROCESSES, os.cpu_count() or 1, len(self.cases))
        with ProcessPoolExecutor(processes, initializer=_begin) as pool:
            waiting: list[Future[Result]] = [
                pool.submit(measured, self.chosen, policy, seed) for policy, seed in self.cases
            ]
            for future in waiting:
                if self._stopped:
                    pool.shutdown(wait=True, cancel_futures=True)
                    return
                yield future.result()
                self.done += 1

    def stop(self) -> None:
        """After the simulation that is being measured."""
        self._stopped = True


def _begin() -> None:
    """A process that simulates begins: interrupts are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_seldom()


def _play(aside: Console, comparison: Comparison) -> list[Result]:
    with interruptible(comparison.stop), progress.told(lambda: tell(aside, comparison)):
        return list(comparison.results())


def tell(aside: Console, comparison: Comparison) -> None:
    """How far it is, to a person who waits; a file or a pipe gets the table only."""
    if aside.is_terminal:
        aside.print(f"  {comparison.done} of {len(comparison.cases)} simulated", style="dim")


# --------------------------------------------------------------------------- what is shown


def _show(console: Console, results: Sequence[Result], folder: Path | None) -> None:
    console.print(table(results))
    console.print(LEGEND, style="dim", soft_wrap=True)
    if folder is not None:
        console.print(f"\n  {folder / 'policies.json'}", soft_wrap=True)


COLUMNS: dict[str, Callable[[Sequence[Yardsticks]], str]] = {
    "goodput": lambda found: f"{median_low(f.goodput_per_s for f in found):.1f}",
    "p50": lambda found: _duration([f.p50_ms for f in found]),
    "p99": lambda found: _duration([f.p99_ms for f in found]),
    "Jain": lambda found: _number([f.jain for f in found], "{:.3f}"),
    "min\nshare": lambda found: _number([f.min_share for f in found], "{:.2f}"),
    "gap": lambda found: _number([f.service_gap for f in found], "{:,.0f}"),
    "queue\nage": lambda found: text.milliseconds(1e3 * median_low(f.queue_age_s for f in found)),
    "refused": lambda found: text.share(median_low(f.refused for f in found)),
}
"""Heading and content of each column: the median (the lower of two) over the seeds."""


def table(results: Sequence[Result]) -> Table:
    """One row a policy."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("policy", no_wrap=True)
    for heading in COLUMNS:
        shown.add_column(heading, justify="right", no_wrap=True)
    for policy in dict.fromkeys(result.policy for result in results):
        found = [result.found for result in results if result.policy == policy]
        shown.add_row(policy, *(column(found) for column in COLUMNS.values()))
    return shown


def _known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median_low(known) if known else None


def _number(values: Sequence[float | None], form: str) -> str:
    value = _known(values)
    return text.NOTHING if value is None else form.format(value)


def _duration(values: Sequence[float | None]) -> str:
    value = _known(values)
    return text.NEVER if value == float("inf") else text.milliseconds(value)


def as_json(chosen: Profile, seeds: Sequence[int], results: Sequence[Result]) -> bytes:
    """policies.json: every number of every run, so that any of them can be had again by its seed."""
    content: dict[str, Any] = {
        "schema": 1,
        "profile": chosen.name,
        "seeds": list(seeds),
        "runs": [
            {"policy": one.policy, "seed": one.seed, "digest": one.digest, **plain(one.found)}
            for one in results
        ],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
