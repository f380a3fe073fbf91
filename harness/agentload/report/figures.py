"""Every figure of report.html, and which of them shows what a check judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from markupsafe import Markup

from agentload.report import svg, system_figures, tenant_figures, text
from agentload.report.figure import Figure, Summary, behind

PROOFS: Mapping[str, str] = {
    "victim-latency": "latency",
    "victim-goodput": "refusals",
    "no-starvation": "latency",
    "long-job": "latency",
    "deadline": "latency",
    "nested-timeouts": "latency",
    "refusal-latency": "refusals",
    "status-codes": "refusals",
    "retry-after-present": "refusals",
    "retry-after-syntax": "refusals",
    "retry-after-honest": "refusals",
    "retry-after-spread": "refusals",
    "retry-amplification": "refusals",
    "retry-identity": "refusals",
    "budget": "refusals",
    "weighted-share": "shares",
    "service-gap": "shares",
    "idle-credit": "shares",
    "rebalance": "shares",
    "class-floor": "shares",
    "class-borrow": "shares",
    "class-reclaim": "shares",
    "isolation": "latency",
    "estimate-drift": "shares",
    "bounded-queue": "queue",
    "provider-limit": "provider",
    "work-conserving": "provider",
    "concurrency-cap": "provider",
    "upstream-retry-after": "provider",
    "cancel-upstream": "provider",
    "capacity-leak": "provider",
    "tenant-limit": "provider",
    "no-ghosts": "queue",
    "overload-goodput": "refusals",
    "recovery": "latency",
}
"""Check → the figure that shows what it judged. A check that is not here shows its numbers only."""


_MAKERS = (
    tenant_figures.shares,
    tenant_figures.latency,
    tenant_figures.spectrum,
    tenant_figures.refusals,
    system_figures.queue,
    system_figures.provider,
    system_figures.lateness,
)


def draw(summary: Summary) -> list[Figure]:
    """Every figure that the run has data for, in the order of the page."""
    found = [figure for make in _MAKERS if (figure := make(summary)) is not None]
    return [_with_all_in_the_legend(figure, summary) for figure in found]


def _with_all_in_the_legend(figure: Figure, summary: Summary) -> Figure:
    if not any(panel.x for panel in figure.panels):
        return figure
    return msgspec.structs.replace(figure, legend=[*figure.legend, *behind(summary)])


def meter(check: Mapping[str, Any]) -> Markup | None:
    """Measured against bound as one bar; None where one of the two is missing."""
    bound, measured = check["bound"], check["measured"]
    if not bound or bound < 0 or (measured is None and not check["censored"]):
        return None
    shown = max(0.0, measured) if measured is not None else 2 * bound
    scale = svg.Linear(0, 1.25 * max(bound, shown) if measured is not None else shown)
    at = svg.percent(scale.at(bound))
    parts = (
        _bar("100%", "meter-track"),
        _bar(svg.percent(scale.at(shown)), f"meter-{check['status']}"),
        svg.element("line", x1=at, x2=at, y1=1, y2=19, class_="meter-bound"),
    )
    found = text.quantity(measured, check["unit"], check["censored"])
    said = f"measured {found}, bound {text.quantity(bound, check['unit'])}"
    return svg.picture(Markup("").join(parts), said, "meter")


def _bar(width: str, class_: str) -> Markup:
    return svg.element("rect", x=0, y=6, width=width, height=8, rx=4, class_=class_)
