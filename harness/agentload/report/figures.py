"""The pictures of report.html, drawn from report.json's content: each with a finding in words and its numbers.

A figure is drawn once; a verdict shows it again by reference (`<use>`) with its evidence marked on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from markupsafe import Markup

from agentload.report import svg, text

Summary = Mapping[str, Any]
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

    def again(self, marks: Sequence[tuple[float, str]]) -> list[Markup]:
        """The panels once more, with vertical marks at (seconds, note) where the x axis is time."""
        return [svg.again(panel.id, self.finding, *_marks(panel.x, marks)) for panel in self.panels]


PROOFS: Mapping[str, str] = {
    "victim-latency": "latency",
    "victim-goodput": "refusals",
    "no-starvation": "latency",
    "long-job": "latency",
    "deadline": "latency",
    "refusal-latency": "refusals",
    "status-codes": "refusals",
    "retry-after-present": "refusals",
    "retry-after-syntax": "refusals",
    "retry-after-honest": "refusals",
    "retry-after-spread": "refusals",
    "retry-amplification": "refusals",
    "weighted-share": "shares",
    "service-gap": "shares",
    "idle-credit": "shares",
    "rebalance": "shares",
    "estimate-drift": "shares",
    "bounded-queue": "queue",
    "provider-limit": "provider",
    "work-conserving": "provider",
    "concurrency-cap": "provider",
    "upstream-retry-after": "provider",
    "overload-goodput": "refusals",
    "recovery": "latency",
}
"""Check → the figure that shows what it judged. A check that is not here shows its numbers only."""


def draw(summary: Summary) -> list[Figure]:
    """Every figure that the run has data for, in the order of the page."""
    makers = (_shares, _latency, _spectrum, _refusals, _queue, _provider, _lateness)
    return [figure for maker in makers if (figure := maker(summary)) is not None]


# --------------------------------------------------------------------------- time series


def _shares(summary: Summary) -> Figure | None:
    """Shares of served work over time against what each was entitled to."""
    lanes = _lanes(summary)
    if not any(_values(lane["work_share"]) for lane in lanes.values()):
        return None
    plot = _time_plot(summary, svg.Linear(0, 1, _per_cent, ticks=4))
    at_s = summary["series"]["at_s"]
    for _, lane, class_ in _classed(lanes):
        _steps(plot, at_s, lane["entitled_share"], f"{class_} entitled")
        _steps(plot, at_s, lane["work_share"], class_)
    finding = _shares_finding(summary)
    return Figure(
        id="shares",
        title="Share of the work served, against entitlement",
        finding=finding,
        panels=[_panel("shares", "", plot, finding)],
        legend=[*_legend(lanes), ("entitled (thin, dotted)", "entitled")],
        **_table(summary, lanes, "work_share", text.share),
    )


def _shares_finding(summary: Summary) -> str:
    parts = [
        f"{text.printable(name)} got {text.share(t['work_share'])} of the work, entitled to {text.share(t['entitled_share'])}"
        for name, t in text.busiest(summary["tenants"], 4)
        if t["work_share"] is not None and t["entitled_share"] is not None
    ]
    return "; ".join(parts) + "." if parts else "Work served per tenant over time."


def _latency(summary: Summary) -> Figure | None:
    """Latency of answered requests over time: typical and worst, one panel per lane on one scale."""
    lanes = {name: lane for name, lane in _lanes(summary).items() if _values(lane["latency_max_ms"])}
    worst = [value for lane in lanes.values() for value in _values(lane["latency_max_ms"])]
    best = [value for lane in lanes.values() for value in _values(lane["latency_p50_ms"])]
    if not worst:
        return None
    scale = svg.Log(max(0.1, min(best) / 1.5), max(worst) * 1.5, _duration)
    at_s = summary["series"]["at_s"]
    panels: list[Panel] = []
    for number, (name, lane) in enumerate(lanes.items()):
        plot = _time_plot(summary, scale, NARROW)
        _steps(plot, at_s, lane["latency_max_ms"], "worst")
        _steps(plot, at_s, lane["latency_p50_ms"], "typical")
        _mark_unanswered(plot, at_s, lane)
        panels.append(_panel(f"latency-{number}", name, plot, f"Latency of {text.printable(name)} over time"))
    return Figure(
        id="latency",
        title="Latency over time",
        finding=_latency_finding(summary),
        panels=panels,
        legend=[
            ("median of the interval", "typical"),
            ("worst", "worst"),
            ("refused or lost (top edge)", "lost"),
        ],
        **_table(summary, lanes, "latency_max_ms", text.milliseconds),
    )


def _steps(plot: svg.Plot, at_s: Sequence[float], values: Sequence[float | None], class_: str) -> None:
    """A curve that holds each interval's value to its end."""
    edges = [plot.x.at(at) for at in (*at_s, at_s[-1] + _bucket(at_s))]
    plot.path(svg.steps(edges, [None if value is None else plot.y.at(value) for value in values]), class_)


def _mark_unanswered(plot: svg.Plot, at_s: Sequence[float], lane: Mapping[str, Any]) -> None:
    """A stroke along the top edge wherever requests were not answered."""
    lost = [
        offered - answered > 0 for offered, answered in zip(lane["offered"], lane["answered"], strict=True)
    ]
    step = _bucket(at_s)
    stretches = [
        (plot.x.at(at), plot.x.at(at + step)) for at, is_lost in zip(at_s, lost, strict=True) if is_lost
    ]
    plot.path("".join(svg.line([(left, 1), (right, 1)]) for left, right in stretches), "lost")


def _latency_finding(summary: Summary) -> str:
    """Per lane: p95 in each phase."""
    phases = [phase for phase in summary["phases"] if phase["recorded"]]
    sentences: list[str] = []
    for lane in list(summary["series"]["lanes"])[:4]:
        found = [
            (p["name"], text.percentile(p["lanes"][lane]["latency_ms"], "p95"))
            for p in phases
            if lane in p["lanes"]
        ]
        named = [f"{p95} in {text.printable(phase)}" for phase, p95 in found if p95 != text.NOTHING]
        if named:
            sentences.append(f"p95 of {text.printable(lane)}: {', '.join(named)}")
    return ". ".join(sentences) + "." if sentences else "Latency of answered requests over time."


def _refusals(summary: Summary) -> Figure | None:
    """What was refused and tried again, per second."""
    lanes = _lanes(summary)
    step = summary["series"]["bucket_s"]
    refused = {name: [v / step for v in lane["rejected"]] for name, lane in lanes.items()}
    retries = [
        sum(values) / step for values in zip(*(lane["retries"] for lane in lanes.values()), strict=True)
    ]
    top = max([*(v for values in refused.values() for v in values), *retries], default=0)
    if not top:
        return None
    plot = _time_plot(summary, svg.Linear(0, top * 1.05, _per_second))
    at_s = summary["series"]["at_s"]
    refusing = {name: class_ for name, _, class_ in _classed(lanes) if any(refused[name])}
    for name, class_ in refusing.items():
        _steps(plot, at_s, refused[name], class_)
    if any(retries):
        _steps(plot, at_s, retries, "gauge")
    finding = _refusals_finding(summary)
    return Figure(
        id="refusals",
        title="Refusals and retries per second",
        finding=finding,
        panels=[_panel("refusals", "", plot, finding)],
        legend=[(text.printable(name), class_) for name, class_ in refusing.items()]
        + ([("retries, all tenants", "gauge")] if any(retries) else []),
        **_table(summary, lanes, "rejected", text.figure),
    )


def _refusals_finding(summary: Summary) -> str:
    refusing = [(n, t) for n, t in text.busiest(summary["tenants"], len(summary["tenants"])) if t["rejected"]]
    parts = [
        f"{text.printable(name)}: {t['rejected']:,} of {t['offered']:,} refused, {text.share(t['acceptance'])} answered"
        for name, t in refusing[:4]
    ]
    return "; ".join(parts) + "." if parts else "Nothing was refused for good."


def _queue(summary: Summary) -> Figure | None:
    """The hidden queue and its age, against the gateway's own gauge where it has one."""
    queue = summary["series"]["hidden_queue"]
    depths, ages = _values(queue["depth"]), _values(queue["age_ms"])
    if not depths:
        return None
    panels = [
        _queue_panel(
            summary, "depth", "gauge_depth", "waiting requests", svg.Linear(0, _top(queue, "depth"))
        ),
        _queue_panel(
            summary,
            "age_ms",
            "gauge_age_ms",
            "age of the oldest",
            svg.Linear(0, _top(queue, "age_ms"), _duration),
        ),
    ]
    facts = summary["hidden_queue"]
    finding = f"At most {text.count(facts['max_depth'], 'request')} waited inside the gateway, the oldest for {text.milliseconds(facts['max_age_ms'])}."
    if facts["gauge"]:
        finding += f" The gateway's own gauge differs by {text.figure(facts['gauge']['depth_difference_median'])} (median)."
    del ages
    has_gauge = bool(_values(queue["gauge_depth"]))
    return Figure(
        id="queue",
        title="Hidden queue: depth and age",
        finding=finding,
        panels=panels,
        legend=[("seen from outside", "s0")] + ([("the gateway's gauge", "gauge")] if has_gauge else []),
        headings=["at (s)", "depth", "age", "gauge depth", "gauge age"],
        rows=_queue_rows(queue),
    )


def _queue_panel(summary: Summary, key: str, gauge: str, label: str, y: svg.Scale) -> Panel:
    queue = summary["series"]["hidden_queue"]
    plot = _time_plot(summary, y, NARROW)
    _steps(plot, queue["at_s"], queue[key], "s0")
    plot.path(svg.line(plot.points(queue["at_s"], queue[gauge])), "gauge")
    return _panel(f"queue-{key}", label, plot, f"Hidden queue, {label}, over time")


def _queue_rows(queue: Mapping[str, Any]) -> list[Row]:
    columns = (queue["depth"], queue["age_ms"], queue["gauge_depth"], queue["gauge_age_ms"])
    formats = (text.quantity, text.milliseconds, text.quantity, text.milliseconds)
    rows = [
        [text.figure(at), *(show(value) for show, value in zip(formats, values, strict=True))]
        for at, *values in zip(queue["at_s"], *columns, strict=True)
    ]
    return _thinned(rows)


def _provider(summary: Summary) -> Figure | None:
    """Tokens per second asked of the provider and granted by it, against its limit."""
    provider, series = summary["provider"], summary["series"]["provider"]
    if not provider["available"] or not any(series["offered_tokens_per_s"]):
        return None
    limit = provider["tokens_per_minute"]
    per_s = limit / 60 if limit else 0
    plot = _time_plot(summary, svg.Linear(0, 1.1 * max(per_s, *series["offered_tokens_per_s"])))
    at_s = summary["series"]["at_s"]
    _steps(plot, at_s, series["offered_tokens_per_s"], "worst")
    _steps(plot, at_s, series["admitted_tokens_per_s"], "s0")
    if per_s:
        plot.rule(per_s, "limit", f"limit {text.figure(per_s)}/s")
    finding = _provider_finding(provider)
    return Figure(
        id="provider",
        title="Provider: tokens per second against the limit",
        finding=finding,
        panels=[_panel("provider", "", plot, finding)],
        legend=[("admitted", "s0"), ("offered, refused calls included", "worst")]
        + ([("limit", "limit")] if per_s else []),
        headings=["at (s)", "offered tokens/s", "admitted tokens/s"],
        rows=[
            [text.figure(at), text.figure(offered), text.figure(admitted)]
            for at, offered, admitted in zip(
                at_s, series["offered_tokens_per_s"], series["admitted_tokens_per_s"], strict=True
            )
        ],
    )


def _provider_finding(provider: Mapping[str, Any]) -> str:
    sentence = f"The provider was offered {text.count(provider['offered'], 'call')} and refused {provider['throttled']:,} of them"
    if provider["utilisation"] is not None:
        sentence += f"; {text.share(provider['utilisation'])} of its limit was used in {text.printable(provider['busiest_phase'])}"
    if provider["bucket_s"]:
        sentence += f" (its bucket holds {text.figure(provider['bucket_s'])} s of allowance, so short bursts may pass the line)"
    return sentence + "."


def _lateness(summary: Summary) -> Figure | None:
    """How late requests left the generator."""
    worst = summary["series"]["generator"]["lateness_max_ms"]
    if not _values(worst):
        return None
    plot = _time_plot(summary, svg.Linear(0, 1.1 * max(_values(worst)), _duration))
    _steps(plot, summary["series"]["at_s"], worst, "s0")
    late = summary["generator"]["lateness_ms"]
    finding = f"Requests left {text.percentile(late, 'p50')} late (median), {text.percentile(late, 'p99')} at the 99th percentile."
    return Figure(
        id="lateness",
        title="Generator: how late requests were sent",
        finding=finding,
        panels=[_panel("lateness", "", plot, finding)],
        legend=[("worst of the interval", "s0")],
        headings=["at (s)", "worst lateness"],
        rows=[
            [text.figure(at), text.milliseconds(v)]
            for at, v in zip(summary["series"]["at_s"], worst, strict=True)
        ],
    )


# --------------------------------------------------------------------------- percentile spectrum


def _spectrum(summary: Summary) -> Figure | None:
    """Latency at every percentile, phase against phase, on the axis of HdrHistogram plots."""
    spectra: Mapping[str, Mapping[str, Any]] = summary["spectrum"]
    values = [ms for phases in spectra.values() for curve in phases.values() for _, ms in curve["points"]]
    if not values:
        return None
    scale = svg.Log(max(0.1, min(values) / 1.2), max(values) * 1.3, _duration)
    names = [phase["name"] for phase in summary["phases"] if phase["recorded"]]
    panels = [
        _spectrum_panel(number, lane, phases, names, scale)
        for number, (lane, phases) in enumerate(spectra.items())
    ]
    return Figure(
        id="spectrum",
        title="Percentile spectrum of logical requests, phase against phase",
        finding="Curves that lie on each other mean that a tenant noticed nothing. A curve that ends early reaches requests that were never answered.",
        panels=panels,
        legend=[(name, f"phase{k % 4}") for k, name in enumerate(names)],
        headings=["tenant", "phase", "n", "answered", "p50", "p90", "p95", "p99"],
        rows=_spectrum_rows(spectra),
    )


def _spectrum_panel(
    number: int, lane: str, phases: Mapping[str, Any], names: Sequence[str], y: svg.Scale
) -> Panel:
    plot = svg.Plot(svg.Nines(max(1 - 1 / max(2, curve["n"]) for curve in phases.values())), y)
    for k, name in enumerate(names):
        curve = phases.get(name)
        if curve and curve["points"]:
            shares, durations = zip(*curve["points"], strict=True)
            points = plot.points(shares, durations)
            if curve["answered_share"] < 1 and points[-1] is not None:
                points.append((points[-1][0], 1.0))
            plot.path(svg.line(points), f"phase{k % 4}")
    never = [
        f"{text.share(1 - phases[name]['answered_share'])} never answered in {name}"
        for name in names
        if name in phases and phases[name]["answered_share"] < 1
    ]
    label = f"{lane}: {', '.join(never)}" if never else lane
    finding = f"Latency percentiles of {text.printable(label)}"
    return _panel(f"spectrum-{number}", label, plot, finding, timed=False)


def _spectrum_rows(spectra: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for lane, phases in spectra.items():
        for name, curve in phases.items():
            at = [_at_share(curve, share) for share in (0.5, 0.9, 0.95, 0.99)]
            rows.append([lane, name, f"{curve['n']:,}", text.share(curve["answered_share"]), *at])
    return rows


def _at_share(curve: Mapping[str, Any], share: float) -> str:
    """Where the curve passes a percentile; `never` beyond the answered ones."""
    if share > curve["answered_share"]:
        return text.NEVER
    return next((text.milliseconds(ms) for s, ms in curve["points"] if s >= share - 1e-9), text.NOTHING)


# --------------------------------------------------------------------------- verdicts


def meter(check: Mapping[str, Any]) -> Markup | None:
    """Measured against bound as one bar; None where one of the two is missing."""
    bound, measured = check["bound"], check["measured"]
    if not bound or bound < 0 or (measured is None and not check["censored"]):
        return None
    shown = max(0.0, measured) if measured is not None else 2 * bound
    scale = svg.Linear(0, 1.25 * max(bound, shown) if measured is not None else shown)
    at = svg.percent(scale.at(bound))
    parts = (
        svg.element("rect", x=0, y=6, width="100%", height=8, rx=4, class_="meter-track"),
        svg.element(
            "rect",
            x=0,
            y=6,
            width=svg.percent(scale.at(shown)),
            height=8,
            rx=4,
            class_=f"meter-{check['status']}",
        ),
        svg.element("line", x1=at, x2=at, y1=1, y2=19, class_="meter-bound"),
    )
    said = f"measured {text.quantity(measured, check['unit'], check['censored'])}, bound {text.quantity(bound, check['unit'])}"
    return svg.picture(Markup("").join(parts), said, "meter")


def _marks(x: svg.Scale | None, marks: Sequence[tuple[float, str]]) -> Iterable[Markup]:
    if x is None:
        return
    for at_s, note in marks:
        at = svg.percent(x.at(at_s))
        title = svg.element("title", f"{text.figure(at_s)} s: {text.printable(note)}")
        yield svg.element("line", title, x1=at, x2=at, y1="0", y2="100%", class_="mark")


# --------------------------------------------------------------------------- helpers


def _panel(id_: str, label: str, plot: svg.Plot, finding: str, timed: bool = True) -> Panel:
    full_id = f"plot-{id_}"
    return Panel(label=label, id=full_id, picture=plot.render(finding, full_id), x=plot.x if timed else None)


def _time_plot(summary: Summary, y: svg.Scale, width: int = WIDE) -> svg.Plot:
    """Axes over the run's time, with phases, faults and stalls behind; names only where they fit."""
    end_s = _end_s(summary)
    plot = svg.Plot(svg.Linear(0, end_s, _seconds, ticks=6), y)
    for number, phase in enumerate(summary["phases"]):
        name = text.printable(phase["name"])
        share, needed = (phase["end_s"] - phase["start_s"]) / end_s, LETTER * (len(name) + 1)
        shown = name if share * width > needed else ""
        plot.band(phase["start_s"], phase["end_s"], f"band{number % 2}", shown, "" if share * NARROW > needed else "wide-only")
    for fault in summary["faults"]:
        plot.band(fault["start_s"], fault["end_s"], "fault", fault["name"])
    for stall in summary["generator"]["stalls"]:
        plot.band(stall["start_s"], stall["end_s"], "stall")
    return plot


def _per_cent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _seconds(value: float) -> str:
    return f"{svg.number(float(value))} s"


def _duration(value_ms: float) -> str:
    """0, 20 ms, 1 s: short enough for an axis."""
    if value_ms == 0:
        return "0"
    return f"{value_ms / 1000:g} s" if value_ms >= 1000 else f"{value_ms:g} ms"


def _per_second(value: float) -> str:
    return f"{svg.short(value)}/s"


def _end_s(summary: Summary) -> float:
    """Right edge of the time axes: the end of the phases, or of what was still seen after them."""
    at_s = summary["series"]["at_s"]
    last = at_s[-1] + summary["series"]["bucket_s"] if at_s else 0
    return max([last, *(phase["end_s"] for phase in summary["phases"])])


def _lanes(summary: Summary) -> Mapping[str, Mapping[str, Any]]:
    lanes: Mapping[str, Mapping[str, Any]] = summary["series"]["lanes"]
    return lanes


def _classed(lanes: Mapping[str, Any]) -> Iterable[tuple[str, Any, str]]:
    return ((name, lane, f"s{number % 8}") for number, (name, lane) in enumerate(lanes.items()))


def _legend(lanes: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(text.printable(name), class_) for name, _, class_ in _classed(lanes)]


def _table(
    summary: Summary, lanes: Mapping[str, Any], key: str, show: Callable[[Any], str]
) -> dict[str, Any]:
    """`headings` and `rows` of one value per lane over time."""
    columns = [lane[key] for lane in lanes.values()]
    rows = [
        [text.figure(at), *(text.NOTHING if v is None else show(v) for v in values)]
        for at, *values in zip(summary["series"]["at_s"], *columns, strict=True)
    ]
    return {"headings": ["at (s)", *(text.printable(name) for name in lanes)], "rows": rows}


def _thinned(rows: list[Row], most: int = 120) -> list[Row]:
    """Every k-th row, so that a table stays readable; report.json has them all."""
    return rows[:: max(1, -(-len(rows) // most))]


def _values(series: Iterable[float | None]) -> list[float]:
    return [value for value in series if value is not None]


def _top(queue: Mapping[str, Any], key: str) -> float:
    gauge = "gauge_depth" if key == "depth" else "gauge_age_ms"
    return 1.05 * max([*_values(queue[key]), *_values(queue[gauge])], default=1)


def _bucket(at_s: Sequence[float]) -> float:
    return min((later - earlier for earlier, later in pairwise(at_s)), default=1.0)
