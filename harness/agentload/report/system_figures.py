"""Figures of the machinery: the hidden queue, the provider's limit, the generator's lateness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentload.report import svg, text
from agentload.report.figure import (
    NARROW,
    Figure,
    Panel,
    Row,
    Summary,
    duration,
    panel,
    steps,
    time_plot,
    values,
)


def queue(summary: Summary) -> Figure | None:
    """The hidden queue and its age, against the gateway's own gauge where it has one."""
    series = summary["series"]["hidden_queue"]
    if not values(series["depth"]):
        return None
    bound = _depth_bound(summary)
    depth_scale = svg.Linear(0, max(1.1 * (bound or 0), _top(series, "depth", "gauge_depth")))
    age_scale = svg.Linear(0, _top(series, "age_ms", "gauge_age_ms"), duration)
    has_gauge = bool(values(series["gauge_depth"]))
    return Figure(
        id="queue",
        title="Hidden queue: depth and age",
        finding=_queue_finding(summary["hidden_queue"]),
        panels=[
            _queue_panel(summary, ("depth", "gauge_depth"), "waiting requests", depth_scale, bound),
            _queue_panel(summary, ("age_ms", "gauge_age_ms"), "age of the oldest", age_scale),
        ],
        legend=[("seen from outside", "s0")] + ([("the gateway's gauge", "gauge")] if has_gauge else []),
        headings=["at (s)", "depth", "age", "gauge depth", "gauge age"],
        rows=_queue_rows(series),
        note=f"Curves show the most of each {text.figure(series['bucket_s'])} s: a queue that empties within "
        "one does not touch zero.",
    )


def _queue_finding(facts: Mapping[str, Any]) -> str:
    depth, age = text.count(facts["max_depth"], "request"), text.milliseconds(facts["max_age_ms"])
    finding = f"At most {depth} waited inside the gateway, the oldest for {age}."
    if facts["gauge"]:
        difference = facts["gauge"]["depth_difference_median"]
        finding += (
            f" The gateway's own gauge differs by {text.figure(difference)} (median)."
            if difference
            else " The gateway's own gauge agrees (in the median)."
        )
    return finding


def _depth_bound(summary: Summary) -> float | None:
    """What bounded-queue allows, where it was judged by depth."""
    bounds = [
        check["bound"]
        for check in summary["checks"]
        if check["check"] == "bounded-queue" and check["unit"] == "requests"
    ]
    return bounds[0] if bounds else None


def _queue_panel(
    summary: Summary, keys: tuple[str, str], label: str, y: svg.Scale, bound: float | None = None
) -> Panel:
    series = summary["series"]["hidden_queue"]
    outside, gauge = keys
    plot = time_plot(summary, y, NARROW)
    steps(plot, series["at_s"], series[outside], "s0")
    plot.path(svg.line(plot.points(series["at_s"], series[gauge])), "gauge")
    if bound is not None:
        plot.rule(bound, "limit", f"bound {text.figure(bound)}")
    return panel(f"queue-{outside}", label, plot, f"Hidden queue, {label}, over time")


def _queue_rows(series: Mapping[str, Any]) -> list[Row]:
    columns = (
        series["at_s"],
        series["depth"],
        series["age_ms"],
        series["gauge_depth"],
        series["gauge_age_ms"],
    )
    return [
        [
            text.figure(at),
            text.quantity(depth),
            text.milliseconds(age),
            text.quantity(gauge_depth),
            text.milliseconds(gauge_age),
        ]
        for at, depth, age, gauge_depth, gauge_age in zip(*columns, strict=True)
    ]


def _top(series: Mapping[str, Any], *keys: str) -> float:
    return 1.05 * max((value for key in keys for value in values(series[key])), default=1)


def provider(summary: Summary) -> Figure | None:
    """Tokens per second asked of the provider and granted by it, against its limit."""
    facts, series = summary["provider"], summary["series"]["provider"]
    offered, admitted = series["offered_tokens_per_s"], series["admitted_tokens_per_s"]
    if not facts["available"] or not any(offered):
        return None
    per_s = facts["tokens_per_minute"] / 60 if facts["tokens_per_minute"] else 0
    plot = time_plot(summary, svg.Linear(0, 1.1 * max(per_s, *offered)))
    at_s = summary["series"]["at_s"]
    steps(plot, at_s, offered, "worst")
    steps(plot, at_s, admitted, "s0")
    if per_s:
        plot.rule(per_s, "limit", f"limit {text.figure(per_s)}/s")
    finding = _provider_finding(facts)
    return Figure(
        id="provider",
        title="Provider: tokens per second against the limit",
        finding=finding,
        panels=[panel("provider", "", plot, finding)],
        legend=[("admitted", "s0"), ("offered, refused calls included", "worst")]
        + ([("limit", "limit")] if per_s else []),
        headings=["at (s)", "offered tokens/s", "admitted tokens/s"],
        rows=[[text.figure(value) for value in row] for row in zip(at_s, offered, admitted, strict=True)],
    )


def _provider_finding(facts: Mapping[str, Any]) -> str:
    calls = text.count(facts["offered"], "call")
    finding = f"The provider was offered {calls} and refused {facts['throttled']:,} of them"
    if facts["utilisation"] is not None:
        phase = facts["busiest_phase"]
        finding += f"; {text.share(facts['utilisation'])} of its limit was used in {phase}"
    if facts["bucket_s"]:
        held = text.figure(facts["bucket_s"])
        finding += f" (its bucket holds {held} s of allowance, so short bursts may pass the line)"
    return finding + "."


def lateness(summary: Summary) -> Figure | None:
    """How late requests left the generator."""
    worst = summary["series"]["generator"]["lateness_max_ms"]
    if not values(worst):
        return None
    at_s = summary["series"]["at_s"]
    plot = time_plot(summary, svg.Linear(0, 1.1 * max(values(worst)), duration))
    steps(plot, at_s, worst, "s0")
    late = summary["generator"]["lateness_ms"]
    worst_late = text.milliseconds(max(values(worst)))
    known = [("median", late["p50"]), ("95th percentile", late["p95"]), ("99th percentile", late["p99"])]
    said = [f"{text.milliseconds(value)} ({name})" for name, value in known if value is not None]
    finding = f"Requests left late by {', '.join([*said, f'{worst_late} (worst)'])}."
    return Figure(
        id="lateness",
        title="Generator: how late requests were sent",
        finding=finding,
        panels=[panel("lateness", "", plot, finding)],
        legend=[("worst of the interval", "s0")],
        headings=["at (s)", "worst lateness"],
        rows=[[text.figure(at), text.milliseconds(value)] for at, value in zip(at_s, worst, strict=True)],
    )
