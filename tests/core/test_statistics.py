from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.evidence.statistics import (
    binomial_tail,
    distribution,
    enough,
    fisher_lower,
    percentile,
    percentiles,
    sample_floor,
    slope,
)

INF = math.inf


def test_nearest_rank_by_hand() -> None:
    # The textbook example: ranks 1, 2, 2, 3 and 5 of five values.
    values = [35.0, 15.0, 50.0, 20.0, 40.0]
    assert percentiles(values, (5, 30, 40, 50, 100)) == [15, 20, 20, 35, 50]


def test_nearest_rank_does_not_slip_by_a_rounding_error() -> None:
    hundred = [float(k) for k in range(1, 101)]
    assert [percentile(hundred, p) for p in (7, 14, 28, 29, 55, 56, 57, 58)] == [
        7,
        14,
        28,
        29,
        55,
        56,
        57,
        58,
    ]


def test_infinities_sort_last() -> None:
    values = [1.0] * 95 + [INF] * 5
    assert percentile(values, 95) == 1
    assert percentile([*values, INF], 95) == INF


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_enough_of_the_sample_does_not_exceed(
    values: list[float], percent: int
) -> None:
    found = percentile(values, percent)
    assert found in values
    assert 100 * sum(v <= found for v in values) >= percent * len(values)
    assert 100 * sum(v < found for v in values) < percent * len(values)


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_percentiles_out_of_range_are_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([1.0], percent)


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_sample_floors_are_the_published_ones() -> None:
    assert [sample_floor(p) for p in (50, 95, 99)] == [20, 72, 368]
    assert enough(72, 95)
    assert not enough(71, 95)


def test_a_distribution_is_silent_below_its_floors() -> None:
    few = distribution([2e6] * 72)
    assert (few.p50, few.p95, few.p99, few.n, few.censored) == (2.0, 2.0, None, 72, False)
    assert distribution([]).n == 0


def test_a_distribution_says_that_a_percentile_is_infinite() -> None:
    lost = distribution([1e6] * 90 + [INF] * 10)
    assert (lost.p50, lost.p95, lost.censored) == (1.0, None, True)
    # Losses beyond every stated percentile are no censored percentile.
    assert not distribution([1e6] * 99 + [INF]).censored


def exact_binomial_tail(successes: int, trials: int, p: Fraction) -> Fraction:
    return sum(
        (math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(max(0, successes), trials + 1)),
        Fraction(0),
    )


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 99))
def test_the_binomial_tail_is_exact(successes: int, trials: int, percent: int) -> None:
    exact = exact_binomial_tail(successes, trials, Fraction(percent, 100))
    assert binomial_tail(successes, trials, percent / 100) == pytest.approx(float(exact), rel=1e-9, abs=1e-15)


def test_the_binomial_tail_at_its_ends() -> None:
    assert binomial_tail(0, 10, 0.01) == 1
    assert binomial_tail(1, 10, 0.0) == 0
    assert binomial_tail(10, 10, 1.0) == 1


def exact_fisher(a: int, n_a: int, b: int, n_b: int) -> Fraction:
    total, successes = n_a + n_b, a + b
    ways = sum(
        math.comb(successes, k) * math.comb(total - successes, n_b - k) for k in range(b + 1) if k <= n_b
    )
    return Fraction(ways, math.comb(total, n_b))


@given(st.data())
def test_fishers_test_is_exact(data: st.DataObject) -> None:
    n_a, n_b = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    a, b = data.draw(st.integers(0, n_a)), data.draw(st.integers(0, n_b))
    assert fisher_lower(a, n_a, b, n_b) == pytest.approx(float(exact_fisher(a, n_a, b, n_b)), rel=1e-9)


def test_fishers_test_by_hand() -> None:
    # Fisher's tea lady: 4 of 4 right against 0 of 4 has one of 70 ways.
    assert fisher_lower(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert fisher_lower(4, 4, 4, 4) == pytest.approx(1)


@settings(max_examples=50)
@given(st.floats(-100, 100), st.floats(-100, 100), st.lists(st.integers(-50, 50), min_size=2, unique=True))
def test_the_slope_of_a_line_is_its_slope(rise: float, start: float, xs: list[int]) -> None:
    ys = [start + rise * x for x in xs]
    assert slope([float(x) for x in xs], ys) == pytest.approx(rise, abs=1e-6)


def test_least_squares_by_hand() -> None:
    # y = 1, 3, 2 over x = 0, 1, 2: Σ(x−1)(y−2) / Σ(x−1)² = (1 + 0 + 0) / 2
    assert slope([0, 1, 2], [1, 3, 2]) == pytest.approx(0.5)
    assert slope([1], [5]) == 0
    assert slope([1, 1], [0, 9]) == 0
