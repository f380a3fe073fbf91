"""A published experiment on the terminal: arms × measures, then what was to be expected and what came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentload.evidence.expectations import Column, Expectation, Measures, Value
from agentload.experiments import Arm, Experiment, Source
from agentload.model import Status
from agentload.report import text
from agentload.report.terminal import COLOURS


def print_opening(
    name: str, experiment: Experiment, arms: Sequence[Arm], planned: int, folder: Path, console: Console
) -> None:
    """The question, the source, and what is about to be played."""
    question = (experiment.__doc__ or "").split("\n", 1)[0]
    console.print(f"{name}: {question}", soft_wrap=True)
    console.print(source_line(experiment.source), style="dim", soft_wrap=True)
    console.print(
        f"{text.count(len(arms), 'arm')}, {text.count(planned, 'run')}, into {folder}", soft_wrap=True
    )


def source_line(source: Source) -> str:
    """Paper, arXiv number, artefact."""
    parts = [source.paper, f"arXiv {source.arxiv}" if source.arxiv else "", source.artefact]
    return ", ".join(part for part in parts if part)


def print_result(
    columns: Sequence[Column],
    by_arm: Mapping[str, Sequence[Measures]],
    expectations: Sequence[Expectation],
    console: Console,
) -> None:
    """The table and the expectations."""
    console.print()
    whole = table(columns, by_arm)
    fits = console.measure(whole).maximum <= console.width
    console.print(whole if fits else table(columns, by_arm, ranges=False))
    if any(len(measures) > 1 for measures in by_arm.values()):
        said = (
            "medians over the seeds; below them least–most, where they differ"
            if fits
            else "medians over the seeds"
        )
        console.print(f"  {said}", style="dim")
    console.print()
    for one in expectations:
        console.print(_line(one, console.options.ascii_only, console.width), soft_wrap=True)


def print_overall(name: str, status: Status, seeds: int, path: Path, console: Console) -> None:
    """The verdict, and where everything is written down."""
    line = Text("\n  ")
    line.append(str(status).upper(), style=f"bold {COLOURS[status]}")
    line.append(f"  {name}, {text.count(seeds, 'seed')}\n\n  {path}")
    console.print(line, soft_wrap=True)


def table(
    columns: Sequence[Column], by_arm: Mapping[str, Sequence[Measures]], *, ranges: bool = True
) -> Table:
    """One row for each arm; over several seeds the median, and below it (where there is room) the range."""
    shown = Table(box=None, padding=(0, 1), header_style="dim")
    shown.add_column("arm", no_wrap=True)
    for column in columns:
        heading = f"{column.heading} {column.unit}" if column.unit else column.heading
        shown.add_column(heading, justify="right")
    for arm, measures in by_arm.items():
        shown.add_row(arm, *(cell([one[column.name] for one in measures], ranges) for column in columns))
    return shown


def cell(values: Sequence[Value], ranges: bool = True) -> str:
    """`3.2`, or `3.2` and below it `2.9–4.1`: the median of several, and their ends."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return text.NOTHING
    middle = _figure(known[len(known) // 2])
    ends = [_figure(known[0]), _figure(known[-1])]
    return f"{middle}\n{'–'.join(ends)}" if ranges and ends[0] != ends[1] else middle


def _figure(value: float) -> str:
    return text.NEVER if math.isinf(value) else text.figure(value)


def _line(one: Expectation, ascii_only: bool, width: int) -> Text:
    """`✓ sjf ÷ fifo: p50  0.738 × (at most 0.8 ×)`, and what was published, below it if too wide."""
    symbols = text.ASCII_SYMBOLS if ascii_only else text.SYMBOLS
    line = Text("  ")
    line.append(f"{symbols[one.status]} ", style=f"bold {COLOURS[one.status]}")
    line.append(one.name, style="bold")
    measured = text.quantity(one.measured, one.unit, one.censored)
    line.append(f"  {measured} ({one.relation} {text.quantity(one.bound, one.unit)})")
    published = f"published: {one.published}"
    fits = line.cell_len + 2 + cell_len(published) <= width
    return line.append(f"  {published}" if fits else f"\n    {published}", style="dim")
