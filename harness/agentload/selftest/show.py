"""What a selftest shows on the terminal: progress, then the matrix, then what follows from it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from agentload.report import text
from agentload.selftest.matrix import Alarm, Findings, Found, Margin, Spread
from agentload.selftest.play import Played, Watcher

WIDE = 180
"""Columns that the whole table of margins takes."""
EVERY = 20
"""Lines of progress where there is no terminal."""
NAMED, ALWAYS, SOMETIMES, ELSEWHERE = "●", "○", "◌", "·"
_ASCII = {NAMED: "#", ALWAYS: "o", SOMETIMES: "~", ELSEWHERE: "."}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@contextmanager
def progress(total: int, console: Console) -> Generator[Watcher]:
    """A bar on a terminal, some plain lines elsewhere."""
    if not console.is_terminal:
        yield _Lines(total, console)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def watch(one: Played) -> None:
            bar.update(task, advance=1, description=f"{one.subject}, {text.printable(one.scene)}")

        yield watch


class _Lines:
    def __init__(self, total: int, console: Console) -> None:
        self._total, self._console, self._done = total, console, 0

    def __call__(self, _: Played) -> None:
        self._done += 1
        if self._done * EVERY // self._total > (self._done - 1) * EVERY // self._total:
            self._console.print(f"  {self._done} of {self._total} runs")


# --------------------------------------------------------------------------- the result


def findings(found: Findings, console: Console, paths: Iterable[Path]) -> None:
    """Everything, the most important last, where the eye is."""
    console.print()
    console.print(margins_table(found.mutants, console.width))
    console.print()
    console.print(matrix_table(found, console.options.ascii_only), soft_wrap=True)
    for line in legend(found, console.options.ascii_only):
        console.print(line, style="dim", soft_wrap=True)
    for line in notes(found):
        console.print(line, soft_wrap=True)
    _print_alarms("false alarms", found.false_alarms, console, "red")
    _print_alarms("undecided for the reference or a twin", found.undecided, console, "yellow")
    _print_overall(found, console)
    console.print()
    for path in paths:
        console.print(Text(f"  {path}"), soft_wrap=True)


def margins_table(mutants: Sequence[Found], width: int) -> Table:
    """One row per mutant: its check, how often it failed, and what lies between it and the reference (on a
    narrow terminal the last only)."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for heading in ("mutant", "row", "must fail"):
        table.add_column(heading, no_wrap=True)
    headings = ["killed", "half", "reference", "bound", "mutant", "gap"]
    kept = range(len(headings)) if width >= WIDE else (0, len(headings) - 1)
    for column in kept:
        table.add_column(headings[column], justify="right", no_wrap=True)
    for one in mutants:
        cells = _cells(one)
        shown = [*cells[:3], *(cells[3 + column] for column in kept)]
        table.add_row(*(Text(cell, style="" if one.killed else "red") for cell in shown))
    return table


def _cells(one: Found) -> list[str]:
    killed = f"{one.kills}/{one.seeds}" + ("*" if one.exception else "")
    half = f"{one.half_kills}/{one.half_seeds}" if one.half_seeds else text.NOTHING
    return [one.name, one.row, one.named, killed, half, *margin_cells(one.margin)]


def margin_cells(margin: Margin | None) -> list[str]:
    """Reference, bound, mutant, gap; dashes where there is nothing to compare."""
    if margin is None:
        return [text.NOTHING] * 4
    bound = text.quantity(margin.bound, margin.unit)
    if margin.separated is None:
        return [
            spread(margin.reference),
            bound,
            f"{spread(margin.mutant)} {margin.mutant_unit}",
            text.NOTHING,
        ]
    gap = text.NEVER if margin.gap is None else text.figure(margin.gap)
    return [spread(margin.reference), bound, spread(margin.mutant), gap]


def spread(of: Spread) -> str:
    """`1.05–1.13`, or one number where all are alike."""
    low, high = (text.NEVER if value is None else text.figure(value) for value in (of.least, of.most))
    return low if low == high else f"{low}–{high}"


def matrix_table(found: Findings, ascii_only: bool) -> Table:
    """Mutants × checks. Columns are letters: there are too many names for a terminal's width."""
    table = Table(box=None, padding=(0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for letter, _ in zip(_LETTERS, found.checks, strict=False):
        table.add_column(f" {letter}", no_wrap=True)
    for one in found.mutants:
        marks = [mark(one, check) for check in found.checks]
        shown = [_ASCII.get(m, m) if ascii_only else m for m in marks]
        table.add_row(f"{one.name} ", *(Text(f" {m}", style="bold" if m == NAMED else "") for m in shown))
    return table


def mark(one: Found, check: str) -> str:
    """What a cell of the matrix holds."""
    failed = one.by_check.get(check, 0)
    if failed:
        return NAMED if check == one.named else ALWAYS if failed == one.seeds else SOMETIMES
    return ELSEWHERE if check in one.elsewhere else " "


def legend(found: Findings, ascii_only: bool) -> list[str]:
    """What the marks and the letters mean."""
    marks = {NAMED: "fails, as it must", ALWAYS: "fails too", SOMETIMES: "with some seeds"}
    marks[ELSEWHERE] = "under another load"
    shown = [f"{_ASCII[m] if ascii_only else m} {meaning}" for m, meaning in marks.items()]
    names = [f"{letter} {check}" for letter, check in zip(_LETTERS, found.checks, strict=False)]
    lines = ["", "  " + "   ".join(shown)]
    return lines + ["  " + "   ".join(names[k : k + 5]) for k in range(0, len(names), 5)]


def notes(found: Findings) -> list[str]:
    """What to look into: survivors, exceptions, crashes, checks that no mutant needs."""
    lines = [""]
    if found.survivors:
        lines.append(f"  nobody kills {', '.join(found.survivors)}: a bug in the harness")
    lines += [f"  {one.name}: {error}" for one in found.mutants for error in one.errors]
    lines += [f"  * {one.name}: {one.exception}" for one in found.mutants if one.exception]
    lines += [f"  {error}" for error in found.errors]
    if found.suspects:
        lines.append(f"  suspect, for they are nowhere the only ones to notice: {', '.join(found.suspects)}")
    if found.blind:
        lines.append(f"  no mutant makes them fail: {', '.join(found.blind)}")
    return lines


def _print_alarms(what: str, alarms: Sequence[Alarm], console: Console, style: str) -> None:
    if alarms:
        console.print(f"  {what}:", style=style)
    for one in alarms:
        seeds = ", ".join(map(str, one.seeds[:5])) + (" …" if len(one.seeds) > 5 else "")
        who = ", ".join(one.subjects)
        line = f"    {one.scene}, {one.check} ({who}; seed {seeds}): {one.because}"
        console.print(Text(text.printable(line)), soft_wrap=True)


def _print_overall(found: Findings, console: Console) -> None:
    killed = sum(one.killed for one in found.mutants)
    clean = len(found.false_alarms)
    line = Text("\n  ")
    verdict = "INTERRUPTED" if found.interrupted else "PASSED" if found.passed else "FAILED"
    line.append(verdict, style="bold green" if found.passed else "bold red")
    line.append(f"  {killed} of {len(found.mutants)} mutants killed by the check that must, ")
    line.append(f"{text.count(clean, 'false alarm')} in the reference and {len(found.twins)} twins")
    line.append(f", {found.played} of {found.planned} runs, {found.cpu_s:.0f} s of CPU", style="dim")
    console.print(line)
