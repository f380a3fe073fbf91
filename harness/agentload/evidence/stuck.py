"""Stretches in which something waited for too long: as a gauge of age has them, and as seen from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentload.evidence.hidden_queue import Wait
from agentload.evidence.intervals import Interval
from agentload.model import Sample


def seen_from_outside(waits: Iterable[Wait], max_age_ns: int) -> list[Interval]:
    """When at least one attempt had been in the gateway, without a call at the provider, for so long."""
    old = sorted((wait.start_ns + max_age_ns, wait.end_ns) for wait in waits if wait.length_ns > max_age_ns)
    merged: list[Interval] = []
    for start, end in old:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def said_by_gauge(samples: Sequence[Sample], gauge: str, max_age_s: float) -> list[Interval]:
    """When the gauge was above it, from the first such sample to the last."""
    found: list[Interval] = []
    begun: int | None = None
    last = 0
    for sample in samples:
        if sample.values[gauge] > max_age_s:
            begun = sample.at_ns if begun is None else begun
            last = sample.at_ns
        elif begun is not None:
            found.append((begun, last))
            begun = None
    return found if begun is None else [*found, (begun, last)]


def fires(stretches: Iterable[Interval], for_ns: int) -> list[Interval]:
    """When an alert fires that wants it to have lasted for so long."""
    return [(start + for_ns, end) for start, end in stretches if end - start >= for_ns]


def touches(stretch: Interval, others: Iterable[Interval], grace_ns: int) -> bool:
    """Whether any of them overlaps it, or comes as near as the grace."""
    return any(start <= stretch[1] + grace_ns and end >= stretch[0] - grace_ns for start, end in others)
