"""The run over time, in intervals: the data behind the charts, and part of report.json.

Downsampling is honest: queues, ages and lateness keep the worst of each interval, latencies the median and
the worst.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agentload.evidence import history
from agentload.evidence.hidden_queue import Wait, depth_steps, waits
from agentload.evidence.history import LogicalRequest
from agentload.evidence.intervals import Step
from agentload.measure import percentile_of, rank
from agentload.model import NS, Outcome, Run, Sample
from agentload.report.contention import Contention, interval_of
from agentload.report.lanes import Lanes, lane_by_tenant
from agentload.report.svg import nice_step

MS = 1_000_000
INTERVALS = 60
FINE_INTERVALS = 240
DEPTH_GAUGES = ("waiting", "queue_depth", "queued", "depth")
"""Names under which a gateway may show how many requests wait in it; the first that occurs is used."""
AGE_GAUGES = ("oldest_age_ms", "oldest_wait_ms", "oldest_age_s", "oldest_wait_s", "queue_age_s")
SPECTRUM_STEPS_PER_DECADE = 12


class Queue(msgspec.Struct, frozen=True):
    """The hidden queue of a run: what it rests on, kept so that facts and series count the same."""

    steps: list[Step]
    waits: list[Wait]


def hidden_queue(run: Run) -> Queue | None:
    """None where the provider is not ours: without its ledger nothing can be said."""
    if not run.ledger_available:
        return None
    return Queue(depth_steps(run.records, run.ledger), waits(run.records, run.ledger))


def edges_ns(run: Run, intervals: int = INTERVALS) -> list[int]:
    """Edges of about so many equal intervals of a round length that cover the run and what came after it."""
    end = max(run.profile.duration_ns, history.end_ns(run) + 1)
    width = max(1, round(nice_step(end / NS / intervals) * NS))
    return [k * width for k in range(-(-end // width) + 1)]


def series(
    run: Run,
    requests: Sequence[LogicalRequest],
    lanes: Lanes,
    story: Contention,
    queue: Queue | None,
    edges: Sequence[int],
) -> dict[str, Any]:
    """Everything over time; lists are as long as `at_s`, None where there was nothing to measure."""
    width_s = (edges[1] - edges[0]) / NS
    return {
        "bucket_s": width_s,
        "at_s": [round(edge / NS, 3) for edge in edges[:-1]],
        "lanes": _lanes(run, requests, lanes, story, edges),
        "provider": _provider(run, edges),
        "generator": {"lateness_max_ms": _lateness(run, edges)},
        "hidden_queue": _queue(run, queue),
    }


# --------------------------------------------------------------------------- tenants


def _lanes(
    run: Run, requests: Sequence[LogicalRequest], lanes: Lanes, story: Contention, edges: Sequence[int]
) -> dict[str, Any]:
    lane_of = lane_by_tenant(lanes)
    counts = {lane: _counters(len(edges) - 1) for lane in lanes}
    durations: dict[str, list[list[float]]] = {lane: [[] for _ in edges[1:]] for lane in lanes}
    for request in requests:
        lane, index = lane_of.get(request.tenant), interval_of(request.first.first_due_ns, edges)
        if lane is None or index is None:
            continue
        counts[lane]["offered"][index] += 1
        if request.answered:
            counts[lane]["answered"][index] += 1
            durations[lane][index].append(request.latency_ns / MS)
    for record in run.records:
        lane, index = lane_of.get(record.tenant), interval_of(record.ended_ns, edges)
        if lane is not None and index is not None:
            counts[lane]["rejected"][index] += record.outcome in history.REFUSALS
            counts[lane]["retries"][index] += record.attempt > 0
    return {
        lane: counts[lane] | _shares(tenants, story) | _typical_and_worst(durations[lane])
        for lane, tenants in lanes.items()
    }


def _counters(length: int) -> dict[str, list[int]]:
    return {name: [0] * length for name in ("offered", "answered", "rejected", "retries")}


def _shares(tenants: Sequence[str], story: Contention) -> dict[str, list[float | None]]:
    work_share: list[float | None] = []
    entitled_share: list[float | None] = []
    for got, due in zip(story.served, story.entitled, strict=True):
        total = sum(got.values())
        work_share.append(_rounded(sum(got.get(t, 0.0) for t in tenants) / total if total else None, 4))
        entitled_share.append(_rounded(sum(due.get(t, 0.0) for t in tenants) / total if total else None, 4))
    return {"work_share": work_share, "entitled_share": entitled_share}


def _typical_and_worst(durations: Iterable[list[float]]) -> dict[str, list[float | None]]:
    """The median and the maximum of each interval: what was seen, not statements about percentiles."""
    ascending = [sorted(values) for values in durations]
    return {
        "latency_p50_ms": [_rounded(percentile_of(v, 50) if v else None) for v in ascending],
        "latency_max_ms": [_rounded(v[-1] if v else None) for v in ascending],
    }


def spectrum(requests: Iterable[LogicalRequest], lanes: Lanes, phases: Sequence[str]) -> dict[str, Any]:
    """Percentile curves of logical requests, per lane and phase: (share of all, at most so many ms)."""
    lane_of = lane_by_tenant(lanes)
    grouped: dict[str, dict[str, list[float]]] = {lane: {phase: [] for phase in phases} for lane in lanes}
    for request in requests:
        lane = lane_of.get(request.tenant)
        if lane is not None and request.phase in grouped[lane]:
            grouped[lane][request.phase].append(request.latency_ns)
    return {
        lane: {phase: _curve(values) for phase, values in by_phase.items() if values}
        for lane, by_phase in grouped.items()
        if any(by_phase.values())
    }


def _curve(latencies_ns: list[float]) -> dict[str, Any]:
    """The curve stops before the maximum, which on an axis of nines lies at infinity."""
    ascending = sorted(latencies_ns)
    n = len(ascending)
    answered = bisect_left(ascending, math.inf)
    ranks = {rank(100 * share, n) for share in _spectrum_shares(n)} | {min(answered, max(1, n - 1))}
    reached = sorted(r for r in ranks if 0 < r <= answered)
    return {
        "n": n,
        "answered_share": round(answered / n, 6),
        "points": [[round(r / n, 6), round(ascending[r - 1] / MS, 3)] for r in reached],
    }


def _spectrum_shares(n: int) -> list[float]:
    """Shares evenly spread on the axis of nines, and the usual percentiles, as far as n values reach."""
    deepest = 1 - 1 / n
    steps = (1 - 10 ** -(k / SPECTRUM_STEPS_PER_DECADE) for k in range(8 * SPECTRUM_STEPS_PER_DECADE))
    return [share for share in (*steps, 0.5, 0.9, 0.95, 0.99, 0.999) if share <= deepest]


# --------------------------------------------------------------------------- provider and generator


def _provider(run: Run, edges: Sequence[int]) -> dict[str, list[float]]:
    """What the gateway asked for, by arrival, and the part that the provider took up."""
    width_s = (edges[1] - edges[0]) / NS
    offered = [0.0] * (len(edges) - 1)
    admitted = list(offered)
    throttled = list(offered)
    for call in run.ledger:
        index = interval_of(call.arrived_ns, edges)
        if index is None:
            continue
        offered[index] += call.charged_tokens / width_s
        if call.started_ns is not None:
            admitted[index] += call.charged_tokens / width_s
        else:
            throttled[index] += 1 / width_s
    named = {"offered_tokens_per_s": offered, "admitted_tokens_per_s": admitted, "throttled_per_s": throttled}
    return {name: [round(value, 1) for value in values] for name, values in named.items()}


def _lateness(run: Run, edges: Sequence[int]) -> list[float | None]:
    worst: list[float | None] = [None] * (len(edges) - 1)
    for record in run.records:
        index = interval_of(record.due_ns, edges)
        if index is not None and record.outcome is not Outcome.UNSENT:
            late_ms = round((record.sent_ns - record.due_ns) / MS, 3)
            worst[index] = max(late_ms, worst[index] or 0.0)
    return worst


# --------------------------------------------------------------------------- the hidden queue


def _queue(run: Run, queue: Queue | None) -> dict[str, Any]:
    edges = edges_ns(run, FINE_INTERVALS)
    nothing: list[float | None] = [None] * (len(edges) - 1)
    depth_gauge, depth_scale = gauge_name(run.samples, DEPTH_GAUGES)
    age_gauge, age_scale = gauge_name(run.samples, AGE_GAUGES)
    return {
        "bucket_s": (edges[1] - edges[0]) / NS,
        "at_s": [round(edge / NS, 3) for edge in edges[:-1]],
        "depth": [float(d) for d in deepest(queue.steps, edges)] if queue else nothing,
        "age_ms": oldest_ms(queue.waits, edges) if queue else nothing,
        "gauge_depth": _gauge(run.samples, depth_gauge, depth_scale, edges),
        "gauge_age_ms": _gauge(run.samples, age_gauge, age_scale, edges),
    }


def deepest(steps: Sequence[Step], edges: Sequence[int]) -> list[int]:
    """The highest value of a step function in each interval."""
    found: list[int] = []
    index, value = 0, 0
    for end in edges[1:]:
        highest = value
        while index < len(steps) and steps[index][0] < end:
            value = steps[index][1]
            highest = max(highest, value)
            index += 1
        found.append(highest)
    return found


def oldest_ms(found: Iterable[Wait], edges: Sequence[int]) -> list[float | None]:
    """The age that the oldest waiter reached in each interval; 0 where nobody waited."""
    ages = [0] * (len(edges) - 1)
    for wait in found:
        first = interval_of(wait.start_ns, edges)
        if first is None:
            continue
        for index in range(first, len(ages)):
            ages[index] = max(ages[index], min(wait.end_ns, edges[index + 1]) - wait.start_ns)
            if wait.end_ns < edges[index + 1]:
                break
    return [round(age / MS, 3) for age in ages]


def gauge_name(samples: Iterable[Sample], names: Sequence[str]) -> tuple[str | None, float]:
    """The first of the names that the gateway's samples hold, and its factor to milliseconds (else 1)."""
    present = {name for sample in samples if sample.source == "gateway" for name in sample.values}
    name = next((name for name in names if name in present), None)
    return name, 1000.0 if name is not None and name.endswith("_s") else 1.0


def _gauge(
    samples: Iterable[Sample], name: str | None, scale: float, edges: Sequence[int]
) -> list[float | None]:
    """The highest reading of each interval."""
    found: list[float | None] = [None] * (len(edges) - 1)
    for sample in samples:
        index = interval_of(sample.at_ns, edges)
        if name is not None and sample.source == "gateway" and name in sample.values and index is not None:
            found[index] = max(sample.values[name] * scale, found[index] or 0.0)
    return found


def rounded_or_none(values: Mapping[str, float | None], digits: int = 3) -> dict[str, float | None]:
    """A mapping of numbers, rounded."""
    return {name: _rounded(value, digits) for name, value in values.items()}


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
