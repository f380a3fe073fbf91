from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.evidence.intervals import (
    Interval,
    highest,
    intersect,
    longest,
    means,
    merge,
    overlap_count,
    value_at,
)

END = 24
intervals = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=8)


def points(parts: list[Interval]) -> set[int]:
    """The brute-force view: the unit cells that intervals cover."""
    return {cell for start, end in parts for cell in range(start, end)}


@given(intervals)
def test_a_union_covers_the_same_and_never_touches_itself(parts: list[Interval]) -> None:
    merged = merge(parts)
    assert points(merged) == points(parts)
    assert all(left[1] < right[0] for left, right in pairwise(merged))


@given(intervals, intervals)
def test_an_intersection_is_what_both_cover(left: list[Interval], right: list[Interval]) -> None:
    assert points(intersect(merge(left), merge(right))) == points(left) & points(right)


@given(intervals)
def test_an_overlap_count_counts(parts: list[Interval]) -> None:
    steps = overlap_count(parts)
    for at in range(END):
        assert value_at(steps, at) == sum(start <= at < end for start, end in parts)


@given(intervals, st.integers(0, END - 1), st.integers(1, END))
def test_the_highest_value_in_a_window(parts: list[Interval], start: int, length: int) -> None:
    steps, window = overlap_count(parts), (start, start + length)
    best, at = highest(steps, window)
    values = [value_at(steps, cell) for cell in range(*window)]
    assert best == max(values)
    assert value_at(steps, at) == best


@given(intervals, st.integers(1, 6))
def test_the_means_of_parts_weigh_by_time(parts: list[Interval], count: int) -> None:
    steps, window = overlap_count(parts), (0, 4 * count)
    for k, (middle, mean) in enumerate(means(steps, window, count)):
        cells = range(4 * k, 4 * k + 4)
        assert middle == 4 * k + 2
        assert mean == pytest.approx(sum(value_at(steps, cell) for cell in cells) / 4)


def test_the_longest_is_the_first_of_equals() -> None:
    assert longest([(0, 1), (5, 8), (10, 13)]) == (5, 8)
    assert longest([]) is None
