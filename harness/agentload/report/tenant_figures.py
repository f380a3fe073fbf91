"""Figures of what tenants got: shares, latency over time, percentile spectrum, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentload.report import svg, text
from agentload.report.figure import (
    NARROW,
    Figure,
    Panel,
    Row,
    Summary,
    bucket,
    classed_by_kind,
    duration,
    lanes_of,
    panel,
    per_cent,
    per_second,
    steps,
    table,
    time_plot,
    values,
)


def shares(summary: Summary) -> Figure | None:
    """Shares of served work over time against what each was entitled to."""
    lanes = lanes_of(summary)
    if not any(values(lane["work_share"]) for lane in lanes.values()):
        return None
    plot = time_plot(summary, svg.Linear(0, 1, per_cent, ticks=4))
    at_s = summary["series"]["at_s"]
    for _, lane, class_ in classed_by_kind(summary):
        steps(plot, at_s, lane["work_share"], class_)
    for _, lane, class_ in classed_by_kind(summary):  # above all curves: who gets its due would cover it
        steps(plot, at_s, lane["entitled_share"], f"{class_} entitled")
    finding = _shares_finding(summary)
    return Figure(
        id="shares",
        title="Share of the work served, against entitlement",
        finding=finding,
        panels=[panel("shares", "", plot, finding)],
        legend=[*_legend(summary), ("entitled, in the same colour", "entitled")],
        **table(summary, lanes, "work_share", text.share),
    )


def _shares_finding(summary: Summary) -> str:
    parts: list[str] = []
    for name, tenant in text.busiest(text.folded(summary), 4):
        got, entitled = tenant["work_share"], tenant["entitled_share"]
        if got is not None and entitled is not None:
            parts.append(f"{name} got {text.share(got)}, entitled to {text.share(entitled)}")
    return "; ".join(parts) + "." if parts else "Work served per tenant over time."


def latency(summary: Summary) -> Figure | None:
    """Latency of answered requests over time: typical and worst, one panel per lane on one scale."""
    lanes = {name: lane for name, lane in lanes_of(summary).items() if values(lane["latency_max_ms"])}
    worst = [value for lane in lanes.values() for value in values(lane["latency_max_ms"])]
    best = [value for lane in lanes.values() for value in values(lane["latency_p50_ms"])]
    if not worst:
        return None
    scale = svg.Log(max(0.1, min(best) / 1.5), max(worst) * 1.5, duration)
    at_s = summary["series"]["at_s"]
    panels: list[Panel] = []
    for number, (name, lane) in enumerate(lanes.items()):
        plot = time_plot(summary, scale, NARROW)
        steps(plot, at_s, lane["latency_max_ms"], "worst")
        steps(plot, at_s, lane["latency_p50_ms"], "typical")
        _mark_unanswered(plot, at_s, lane)
        panels.append(panel(f"latency-{number}", name, plot, f"Latency of {name} over time"))
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
        note="The scale is logarithmic, and the same in every picture.",
        **table(summary, lanes, "latency_max_ms", text.milliseconds),
    )


def _mark_unanswered(plot: svg.Plot, at_s: Sequence[float], lane: Mapping[str, Any]) -> None:
    """A stroke along the top edge wherever requests were not answered."""
    lost = [
        offered - answered > 0 for offered, answered in zip(lane["offered"], lane["answered"], strict=True)
    ]
    step = bucket(at_s)
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
        named = [f"{p95} in {phase}" for phase, p95 in found if p95 != text.NOTHING]
        if named:
            sentences.append(f"p95 of {lane}: {', '.join(named)}")
    return ". ".join(sentences) + "." if sentences else "Latency of answered requests over time."


def refusals(summary: Summary) -> Figure | None:
    """What was refused and tried again, per second."""
    lanes = lanes_of(summary)
    step = summary["series"]["bucket_s"]
    refused = {name: [v / step for v in lane["rejected"]] for name, lane in lanes.items()}
    retries = [
        sum(values) / step for values in zip(*(lane["retries"] for lane in lanes.values()), strict=True)
    ]
    top = max([*(v for values in refused.values() for v in values), *retries], default=0)
    if not top:
        return None
    plot = time_plot(summary, svg.Linear(0, top * 1.05, per_second))
    at_s = summary["series"]["at_s"]
    refusing = {name: class_ for name, _, class_ in classed_by_kind(summary) if any(refused[name])}
    for name, class_ in refusing.items():
        steps(plot, at_s, refused[name], class_)
    if any(retries):
        steps(plot, at_s, retries, "gauge")
    finding = _refusals_finding(summary)
    return Figure(
        id="refusals",
        title="Refusals and retries per second",
        finding=finding,
        panels=[panel("refusals", "", plot, finding)],
        legend=list(refusing.items()) + ([("retries, all tenants", "gauge")] if any(retries) else []),
        **table(summary, lanes, "rejected", text.figure),
    )


def _refusals_finding(summary: Summary) -> str:
    refusing = {name: t for name, t in text.folded(summary).items() if t["refused_attempts"]}
    parts = [
        f"{name} was refused {text.count(tenant['refused_attempts'], 'time')}; "
        f"{text.share(tenant['acceptance'])} of its requests were answered"
        for name, tenant in text.busiest(refusing, 4)
    ]
    return ". ".join(parts) + "." if parts else "Nothing was refused in the recorded phases."


def spectrum(summary: Summary) -> Figure | None:
    """Latency at every percentile, phase against phase, on the axis of HdrHistogram plots."""
    spectra: Mapping[str, Mapping[str, Any]] = summary["spectrum"]
    values = [ms for phases in spectra.values() for curve in phases.values() for _, ms in curve["points"]]
    if not values:
        return None
    scale = svg.Log(max(0.1, min(values) / 1.2), max(values) * 1.3, duration)
    names = [phase["name"] for phase in summary["phases"] if phase["recorded"]]
    panels = [
        _spectrum_panel(number, lane, phases, names, scale)
        for number, (lane, phases) in enumerate(spectra.items())
    ]
    return Figure(
        id="spectrum",
        title="Percentile spectrum of logical requests, phase against phase",
        finding="Curves that lie on each other mean that a tenant noticed nothing. A curve that ends early "
        "reaches requests that were never answered.",
        panels=panels,
        legend=[(name, f"phase{k % 4}") for k, name in enumerate(names)],
        headings=["tenant", "phase", "n", "answered", "p50", "p90", "p95", "p99"],
        rows=_spectrum_rows(spectra),
        note="Times are on a logarithmic scale; from 90% to 99% is as far as from 0% to 90%.",
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
    finding = f"Latency percentiles of {label}"
    return panel(f"spectrum-{number}", label, plot, finding, timed=False)


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


def _legend(summary: Summary) -> list[tuple[str, str]]:
    return [(name, class_) for name, _, class_ in classed_by_kind(summary)]
