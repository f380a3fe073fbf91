"""One profile under many seeds: what holds once may have held by luck.

Leaves `seeds.jsonl`, one line per seed, appended as each is judged (so ^C leaves what was done), and
`seeds.json`, the counts. Any line can be had again, with every report, by `agentload simulate --seed N`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import datetime
from typing import Any, cast

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentload import judge, simulate
from agentload.conclusion import exit_code_of
from agentload.errors import ExitCode
from agentload.garbage import collect_seldom
from agentload.interrupts import interruptible
from agentload.model import Profile, Severity, Status, Verdict, worst
from agentload.report import facts, terminal, text
from agentload.rundir import JsonLines, new_folder, write_file
from agentload.simulate import Options

PROCESSES = 2


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One line of seeds.jsonl."""

    seed: int
    fingerprint: str
    digest: str
    status: Status
    checks: list[dict[str, Any]]
    """As in report.json, without evidence and details."""


def judge_seed(chosen: Profile, seed: int, mutant: str | None = None) -> SeedResult:
    """Simulate and judge one seed."""
    run = simulate.simulate(chosen, seed, parts=simulate.parts_of(mutant))
    verdicts = judge.judge(run)
    return SeedResult(
        seed=seed,
        fingerprint=run.plan.fingerprint,
        digest=run.meta["digest"],
        status=judge.overall(verdicts),
        checks=[_short(verdict) for verdict in verdicts],
    )


def run(options: Options, chosen: Profile, first_seed: int, console: Console) -> int:
    """The command: simulates, prints a table of seed × verdict and the counts. Returns the exit code."""
    folder = new_folder(f"{chosen.name}-seeds", datetime.now(), out=options.out)
    seeds = range(first_seed, first_seed + options.seeds)
    terminal.never_fail_on_letters(console)
    results: list[SeedResult] = []
    sweep = Sweep(chosen, seeds, options.mutant)
    with interruptible(sweep.stop), JsonLines(folder / "seeds.jsonl") as lines:
        where = f"seeds {seeds[0]} to {seeds[-1]}, into {folder}"
        console.print(f"{chosen.name}: {text.printable(chosen.about)}")
        console.print(where, soft_wrap=True)
        for result in sweep.results():
            results.append(result)
            lines.append(result)
            console.print(_line(result, console.options.ascii_only), soft_wrap=True)
    summary = summarise(chosen, results, options.mutant)
    as_json = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    write_file(folder / "seeds.json", as_json + b"\n")
    console.print(_counts(summary, console.options.ascii_only))
    console.print(f"\n  {folder / 'seeds.jsonl'}\n  {folder / 'seeds.json'}", soft_wrap=True)
    if sweep.stopped:
        console.print(f"interrupted after {len(results)} of {len(seeds)} seeds")
        return ExitCode.INTERRUPTED
    status = worst([one.status for one in results])
    return exit_code_of(status, inconclusive_passes=options.inconclusive_passes)


class Sweep:
    """Seeds over at most two processes, results in the order of the seeds."""

    def __init__(self, chosen: Profile, seeds: Sequence[int], mutant: str | None = None) -> None:
        self.chosen, self.seeds, self.mutant = chosen, seeds, mutant
        self.stopped = False

    def results(self) -> Iterator[SeedResult]:
        """As they come; ends early once `stop` was called."""
        processes = min(PROCESSES, os.cpu_count() or 1, len(self.seeds))
        with ProcessPoolExecutor(processes, initializer=_begin) as pool:
            waiting: list[Future[SeedResult]] = [
                pool.submit(judge_seed, self.chosen, seed, self.mutant) for seed in self.seeds
            ]
            for future in waiting:
                if self.stopped:
                    pool.shutdown(wait=True, cancel_futures=True)
                    return
                yield future.result()

    def stop(self) -> None:
        """After the seed that is being judged."""
        self.stopped = True


def _begin() -> None:
    """A process that simulates begins: interrupts are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_seldom()


def _short(verdict: Verdict) -> dict[str, Any]:
    kept = facts.check(verdict)
    return {name: value for name, value in kept.items() if name not in ("evidence", "details")}


# --------------------------------------------------------------------------- what is shown


def summarise(chosen: Profile, results: Sequence[SeedResult], mutant: str | None = None) -> dict[str, Any]:
    """Counts by check (a check named twice is counted twice, by place), and over all."""
    by_place: list[dict[str, Any]] = []
    for place, spec in enumerate(chosen.checks):
        judged = [one.checks[place] for one in results]
        measured = sorted(v["measured"] for v in judged if v["measured"] is not None)
        by_place.append(
            {
                "check": spec.kind,
                **_by_status(v["status"] for v in judged),
                "severity": judged[0]["severity"] if judged else str(Severity.MUST),
                "least": measured[0] if measured else None,
                "median": measured[len(measured) // 2] if measured else None,
                "most": measured[-1] if measured else None,
                "censored": sum(bool(v["censored"]) for v in judged),
                "bound": judged[0]["bound"] if judged else None,
                "unit": judged[0]["unit"] if judged else "",
            }
        )
    return {
        "profile": chosen.name,
        "policy": chosen.gateway.policy,
        "mutant": mutant,
        "seeds": [one.seed for one in results],
        **_by_status(str(one.status) for one in results),
        "checks": by_place,
    }


def _by_status(statuses: Iterator[str] | Sequence[str]) -> dict[str, int]:
    counted = Counter(statuses)
    return {str(status): counted[str(status)] for status in Status}


def _line(result: SeedResult, ascii_only: bool) -> Text:
    symbols = text.ASCII_SYMBOLS if ascii_only else text.SYMBOLS
    line = Text(f"  seed {result.seed:>6}  ")
    line.append(f"{result.status:<12}", style=terminal.COLOURS[result.status])
    for one in result.checks:
        line.append(f" {symbols[one['status']]}", style=terminal.COLOURS[one["status"]])
    wrong = [one["check"] for one in result.checks if one["status"] != Status.PASSED]
    return line.append(f"  {', '.join(dict.fromkeys(wrong))}" if wrong else "")


def _counts(summary: dict[str, Any], ascii_only: bool) -> Table:
    symbols = text.ASCII_SYMBOLS if ascii_only else text.SYMBOLS
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("check", no_wrap=True)
    for heading in (*(symbols[status] for status in Status), "least", "median", "most", "bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = cast("list[dict[str, Any]]", summary["checks"])
    for row in rows:
        numbers = [_number(row, name) for name in ("least", "median")]
        most = text.NEVER if row["censored"] else _number(row, "most")
        counts = [str(row[str(status)]) for status in Status]
        table.add_row(row["check"], *counts, *numbers, most, text.quantity(row["bound"], row["unit"]))
    return table


def _number(row: dict[str, Any], name: str) -> str:
    return text.NOTHING if row[name] is None else text.figure(row[name])
