"""Sets of time intervals, half-open [start, end) in nanoseconds, and step functions over time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

Interval = tuple[int, int]
Step = tuple[int, int]
"""(instant, value from then on)."""


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The union, as ascending intervals that neither overlap nor touch; empty ones vanish."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[0] < i[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def intersect(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """What two merged sets have in common."""
    common: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """What of a merged set lies outside another."""
    kept: list[Interval] = []
    j = 0
    for start, end in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if start < right[k][0]:
                kept.append((start, right[k][0]))
            start = max(start, right[k][1])
            k += 1
        if start < end:
            kept.append((start, end))
    return kept


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of intervals (which may overlap each other) that lie within a window."""
    start, end = window
    return [(max(s, start), min(e, end)) for s, e in intervals if max(s, start) < min(e, end)]


def length_ns(intervals: Iterable[Interval]) -> int:
    """Their lengths together; of overlapping ones, each in full."""
    return sum(end - start for start, end in intervals)


def longest(intervals: Iterable[Interval]) -> Interval | None:
    """The longest interval (the earliest of equals), None when there is none."""
    return max(intervals, key=lambda i: (i[1] - i[0], -i[0]), default=None)


def overlap_count(intervals: Iterable[Interval]) -> list[Step]:
    """How many intervals cover each instant, as steps: one entry per instant at which that number changes."""
    changes: dict[int, int] = {}
    for start, end in intervals:
        if start < end:
            changes[start] = changes.get(start, 0) + 1
            changes[end] = changes.get(end, 0) - 1
    steps: list[Step] = []
    count = 0
    for at, change in sorted(changes.items()):
        if change:
            count += change
            steps.append((at, count))
    return steps


def value_at(steps: Sequence[Step], at_ns: int) -> int:
    """The value of a step function at an instant; 0 before its first step."""
    index = bisect_right(steps, at_ns, key=lambda step: step[0])
    return steps[index - 1][1] if index else 0


def above_zero(steps: Sequence[Step], end_ns: int) -> list[Interval]:
    """When a step function is positive; its last value holds until `end_ns`."""
    ends = [at for at, _ in steps[1:]] + [end_ns]
    return merge((at, end) for (at, value), end in zip(steps, ends, strict=True) if value > 0)


def area(steps: Sequence[Step], intervals: Iterable[Interval]) -> int:
    """The integral of a step function over disjoint intervals, in its unit times nanoseconds."""
    total = 0
    for start, end in intervals:
        at, value = start, value_at(steps, start)
        for index in range(bisect_right(steps, start, key=lambda step: step[0]), len(steps)):
            if steps[index][0] >= end:
                break
            total += value * (steps[index][0] - at)
            at, value = steps[index]
        total += value * (end - at)
    return total


def highest(steps: Sequence[Step], window: Interval) -> tuple[int, int]:
    """(highest value, first instant of it) of a step function within a window."""
    best, best_at = value_at(steps, window[0]), window[0]
    first = bisect_right(steps, window[0], key=lambda step: step[0])
    for at, value in steps[first:]:
        if at >= window[1]:
            break
        if value > best:
            best, best_at = value, at
    return best, best_at


def means(steps: Sequence[Step], window: Interval, parts: int) -> list[tuple[float, float]]:
    """(middle of the part in ns, time-weighted mean) for `parts` equal parts of a window."""
    start, end = window
    edges = [start + (end - start) * k // parts for k in range(parts + 1)]
    found: list[tuple[float, float]] = []
    index = bisect_right(steps, start, key=lambda step: step[0])
    value = steps[index - 1][1] if index else 0
    for left, right in pairwise(edges):
        at, area = left, 0
        while index < len(steps) and steps[index][0] < right:
            area += value * (steps[index][0] - at)
            at, value = steps[index]
            index += 1
        area += value * (right - at)
        found.append(((left + right) / 2, area / (right - left) if right > left else float(value)))
    return found
