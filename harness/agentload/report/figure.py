"""What a figure is, and how the axes over a run's time are drawn; the figures themselves are elsewhere.

A figure is drawn once; a verdict shows it again by reference (`<use>`) with its evidence marked on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from markupsafe import Markup

from agentload.report import svg, text

Summary = Mapping[str, Any]
"""The content of report.json."""
Row = list[str]

WIDE, NARROW, LETTER = 900, 380, 7
"""Roughly, in pixels: a plot that has the row for itself, one beside another, a letter of a label."""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of axes of a figure."""

    label: str
    id: str
    picture: Markup
    x: svg.Scale | None = None
    """The time axis in seconds, where there is one: evidence can be marked on it."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One picture with everything around it."""

    id: str
    title: str
    finding: str
    """What is to be seen, in a sentence: caption and text for those who cannot see it."""
    panels: list[Panel]
    legend: list[tuple[str, str]]
    """(label, CSS class of the curve)."""
    headings: Row
    rows: list[Row]
    """The numbers behind it."""
    note: str = ""
    """How it is to be read, where the axes do not say so themselves."""

    def again(self, marks: Sequence[tuple[float, str]]) -> list[Markup]:
        """The panels once more, with vertical marks at (seconds, note) where the x axis is time."""
        return [svg.again(panel.id, self.finding, *_marks(panel.x, marks)) for panel in self.panels]


def steps(plot: svg.Plot, at_s: Sequence[float], values: Sequence[float | None], class_: str) -> None:
    """A curve that holds each interval's value to its end."""
    edges = [plot.x.at(at) for at in (*at_s, at_s[-1] + bucket(at_s))]
    plot.path(svg.steps(edges, [None if value is None else plot.y.at(value) for value in values]), class_)


def _marks(x: svg.Scale | None, marks: Sequence[tuple[float, str]]) -> Iterable[Markup]:
    if x is None:
        return
    for at_s, note in marks:
        at = svg.percent(x.at(at_s))
        title = svg.element("title", f"{text.figure(at_s)} s: {note}")
        yield svg.element("line", title, x1=at, x2=at, y1="0", y2="100%", class_="mark")


def panel(id_: str, label: str, plot: svg.Plot, finding: str, timed: bool = True) -> Panel:
    full_id = f"plot-{id_}"
    return Panel(label=label, id=full_id, picture=plot.render(finding, full_id), x=plot.x if timed else None)


def time_plot(summary: Summary, y: svg.Scale, width: int = WIDE) -> svg.Plot:
    """Axes over the run's time, with phases, faults and stalls behind; names only where they fit."""
    end_s = _end_s(summary)
    plot = svg.Plot(svg.Linear(0, end_s, seconds, ticks=6), y)
    for number, phase in enumerate(summary["phases"]):
        name = phase["name"]
        share, needed = (phase["end_s"] - phase["start_s"]) / end_s, LETTER * (len(name) + 1)
        shown = name if share * width > needed else ""
        plot.band(
            phase["start_s"],
            phase["end_s"],
            f"band{number % 2}",
            shown,
            "" if share * NARROW > needed else "wide-only",
        )
    for fault in summary["faults"]:
        plot.band(fault["start_s"], fault["end_s"], "fault")
        share = (fault["end_s"] - fault["start_s"]) / end_s
        room = share * width > LETTER * (len(fault["name"]) + 1)
        plot.note(fault["start_s"], fault["name"] if room else "")
    for stall in summary["generator"]["stalls"]:
        plot.band(stall["start_s"], stall["end_s"], "stall")
    return plot


def behind(summary: Summary) -> list[tuple[str, str]]:
    """Legend of what `time_plot` draws behind the curves; phases are named on the picture."""
    stalls, faults = summary["generator"]["stalls"], summary["faults"]
    where = ", ".join(sorted({stall["where"] for stall in stalls}))
    names = ", ".join(sorted({fault["name"] for fault in faults}))
    shown = [(f"stall: {where} stood still", "stall")] if stalls else []
    return shown + ([(f"fault: {names}", "fault")] if faults else [])


def per_cent(value: float) -> str:
    return f"{100 * value:.0f}%"


def seconds(value: float) -> str:
    return f"{svg.number(float(value))} s"


def duration(value_ms: float) -> str:
    """0, 20 ms, 1 s: short enough for an axis."""
    if value_ms == 0:
        return "0"
    return f"{value_ms / 1000:g} s" if value_ms >= 1000 else f"{value_ms:g} ms"


def per_second(value: float) -> str:
    return f"{svg.short(value)}/s"


def _end_s(summary: Summary) -> float:
    """Right edge of the time axes: the end of the phases, or of what was still seen after them."""
    at_s: Sequence[float] = summary["series"]["at_s"]
    last = at_s[-1] + summary["series"]["bucket_s"] if at_s else 0
    ends: list[float] = [phase["end_s"] for phase in summary["phases"]]
    return max([last, *ends])


def lanes_of(summary: Summary) -> Mapping[str, Mapping[str, Any]]:
    lanes: Mapping[str, Mapping[str, Any]] = summary["series"]["lanes"]
    return lanes


def classed(lanes: Mapping[str, Any]) -> Iterable[tuple[str, Any, str]]:
    return ((name, lane, f"s{number % 8}") for number, (name, lane) in enumerate(lanes.items()))


def classed_by_kind(summary: Summary) -> list[tuple[str, Any, str]]:
    """The same, with the lines of tenants that are alike (quiet-1, quiet-2 …) finer than the others."""
    tenants = summary["tenants"]
    groups = Counter(tenants[name]["group"] for name in lanes_of(summary) if name in tenants)
    return [
        (name, lane, f"{class_} fine" if name in tenants and groups[tenants[name]["group"]] > 1 else class_)
        for name, lane, class_ in classed(lanes_of(summary))
    ]


def table(summary: Summary, lanes: Mapping[str, Any], key: str, show: Callable[[Any], str]) -> dict[str, Any]:
    """`headings` and `rows` of one value per lane over time."""
    columns = [lane[key] for lane in lanes.values()]
    rows = [
        [text.figure(at), *(text.NOTHING if v is None else show(v) for v in values)]
        for at, *values in zip(summary["series"]["at_s"], *columns, strict=True)
    ]
    return {"headings": ["at (s)", *(name for name in lanes)], "rows": rows}


def values(series: Iterable[float | None]) -> list[float]:
    return [value for value in series if value is not None]


def bucket(at_s: Sequence[float]) -> float:
    return min((later - earlier for earlier, later in pairwise(at_s)), default=1.0)
