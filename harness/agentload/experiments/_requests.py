"""Measures over requests and calls that several experiments take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentload.evidence.expectations import Value
from agentload.evidence.hidden_queue import calls_by_attempt
from agentload.evidence.history import LogicalRequest
from agentload.evidence.intervals import Interval, overlap_count
from agentload.evidence.statistics import enough, percentile
from agentload.model import NS, Run

TRANSIT_NS = NS // 100
"""A wait up to 10 ms is the way to the provider, not a queue."""


def quantile_s(requests: Sequence[LogicalRequest], percent: float) -> Value:
    """A percentile of the latency, +infinity where it is never answered; None for too few requests."""
    if not enough(len(requests), percent):
        return None
    return percentile([request.latency_ns / NS for request in requests], percent)


def most_waiting(run: Run) -> Value:
    """The most requests that waited for service at once, wherever: in the gateway or at the provider."""
    calls = calls_by_attempt(run.ledger)
    waits: list[Interval] = []
    for record in run.records:
        began = [call.started_ns for call in calls.get((record.seq, record.attempt), ()) if call.started_ns]
        end_ns = min(began, default=record.ended_ns)
        if end_ns - record.sent_ns > TRANSIT_NS:
            waits.append((record.sent_ns, end_ns))
    return float(max((count for _, count in overlap_count(waits)), default=0)) if run.records else None


def per_cent(some: Iterable[object], of: Sequence[object]) -> Value:
    """How many of them; None of none."""
    return 100 * sum(1 for _ in some) / len(of) if of else None
