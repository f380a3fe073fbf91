"""Arrival processes: in the window, in order, at the rate, from `random()` alone."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentload import arrivals
from agentload.model import NS, Spec

EXAMPLES: dict[str, dict[str, Any]] = {
    "bursts": {"size": 5, "every_s": 0.7, "spread_s": 0.3},
    "constant": {"rate": 7.0},
    "poisson": {"rate": 7.0},
    "ramp": {"from_rate": 2.0, "to_rate": 12.0},
    "steps": {"rates": [2.0, 8.0, 3.0], "every_s": 3.0},
    "uniform": {"rate": 7.0},
}


def times(kind: str, params: dict[str, Any], start_ns: int, end_ns: int, seed: object = 1) -> list[int]:
    return arrivals.make(Spec(kind=kind, params=params)).times_ns(start_ns, end_ns, Random(str(seed)))


class CountingRandom(Random):
    """Fails on anything but `random()`, which is the same on every Python."""

    def getrandbits(self, k: int, /) -> int:
        raise AssertionError("only random() is stable across Pythons")


def test_there_is_an_example_of_each() -> None:
    assert sorted(EXAMPLES) == arrivals.SEAM.names()


@pytest.mark.parametrize("kind", EXAMPLES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(), start=st.integers(0, 10**12), length=st.integers(1, 20 * NS))
def test_due_times_lie_in_the_window_in_order(kind: str, seed: int, start: int, length: int) -> None:
    drawn = times(kind, EXAMPLES[kind], start, start + length, seed)
    assert drawn == sorted(drawn)
    assert all(start <= at < start + length and type(at) is int for at in drawn)
    assert drawn == times(kind, EXAMPLES[kind], start, start + length, seed)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_only_random_is_drawn_from(kind: str) -> None:
    made = arrivals.make(Spec(kind=kind, params=EXAMPLES[kind]))
    assert made.times_ns(0, 10 * NS, CountingRandom("x"))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_mean_counts_are_the_means_of_the_counts(kind: str) -> None:
    counts = [len(times(kind, EXAMPLES[kind], 0, 10 * NS, seed)) for seed in range(400)]
    expected = arrivals.make(Spec(kind=kind, params=EXAMPLES[kind])).mean_count(10.0)
    assert expected is not None
    assert mean(counts) == pytest.approx(expected, rel=0.03)


def test_uniform_fixes_the_number_and_spreads_it_evenly() -> None:
    drawn = [times("uniform", {"rate": 6.5}, 0, 15 * NS, seed) for seed in range(200)]
    assert {len(one) for one in drawn} == {98}
    everything = [at for one in drawn for at in one]
    assert mean(everything) == pytest.approx(7.5 * NS, rel=0.02)
    assert stdev(everything) == pytest.approx(15 * NS / 12**0.5, rel=0.02)


def test_poisson_gaps_and_counts_are_exponential() -> None:
    drawn = times("poisson", {"rate": 100}, 0, 200 * NS)
    gaps = [b - a for a, b in pairwise(drawn)]
    assert mean(gaps) == pytest.approx(NS / 100, rel=0.03)
    assert stdev(gaps) == pytest.approx(NS / 100, rel=0.05)
    counts = [len(times("poisson", {"rate": 20}, 0, NS, seed)) for seed in range(2000)]
    assert stdev(counts) ** 2 == pytest.approx(20, rel=0.1)


def test_constant_gaps_are_equal_and_its_start_is_not() -> None:
    drawn = times("constant", {"rate": 8}, NS, 11 * NS)
    assert len(drawn) == 80
    assert {b - a for a, b in pairwise(drawn)} <= {NS // 8 - 1, NS // 8, NS // 8 + 1}
    assert drawn[0] != times("constant", {"rate": 8}, NS, 11 * NS, 2)[0]


def test_bursts_come_together_and_again() -> None:
    assert times("bursts", {"size": 2, "every_s": 1}, 5 * NS, 7 * NS) == [5 * NS, 5 * NS, 6 * NS, 6 * NS]
    late = times("bursts", {"size": 1, "every_s": 2, "first_s": 0.5}, 0, 4 * NS)
    assert late == [NS // 2, 5 * NS // 2]
    spread = times("bursts", {"size": 100, "every_s": 10, "spread_s": 2}, 0, NS)
    assert 30 < len(spread) < 70
    assert len(set(spread)) == len(spread)


def test_a_ramp_has_the_rate_of_each_moment() -> None:
    drawn = [
        at for seed in range(200) for at in times("ramp", {"from_rate": 0, "to_rate": 20}, 0, 10 * NS, seed)
    ]
    by_second = [sum(at // NS == second for at in drawn) / 200 for second in range(10)]
    assert by_second == pytest.approx([1, 3, 5, 7, 9, 11, 13, 15, 17, 19], abs=0.9)
    level = times("ramp", {"from_rate": 7, "to_rate": 7}, 0, 10 * NS)
    assert level == pytest.approx(times("poisson", {"rate": 7}, 0, 10 * NS), abs=2)


@pytest.mark.parametrize(
    ("kind", "field"), [("constant", "rate"), ("poisson", "rate"), ("uniform", "rate"), ("ramp", "to_rate")]
)
def test_rates_are_numbers_that_gaps_can_be_reckoned_from(kind: str, field: str) -> None:
    for wrong in (0.0, 1e-320, 1e-7, float("nan"), float("inf"), 1e6):
        with pytest.raises(ValidationError):
            times(kind, {**EXAMPLES[kind], field: wrong}, 0, NS)
    assert len(times(kind, {**EXAMPLES[kind], field: arrivals.MIN_RATE}, 0, 1000)) <= 1
    with pytest.raises(ValidationError):
        times("bursts", {"size": 1, "every_s": 1e-320}, 0, NS)


def test_steps_have_their_rates_one_after_another_and_then_none() -> None:
    drawn = times("steps", {"rates": [10, 40, 20], "every_s": 2}, 5 * NS, 25 * NS)
    by_second = [sum(at // NS == 5 + second for at in drawn) for second in range(20)]
    assert by_second == pytest.approx([10, 10, 40, 40, 20, 20, *[0] * 14], abs=1)
    assert max(times("steps", {"rates": [10, 40], "every_s": 2}, 0, 3 * NS)) < 3 * NS


@pytest.mark.parametrize("kind", EXAMPLES)
def test_by_three_there_are_three_times_as_many_and_by_one_the_same(kind: str) -> None:
    process = arrivals.make(Spec(kind=kind, params=EXAMPLES[kind]))
    before = [len(process.times_ns(0, 10 * NS, Random(str(seed)))) for seed in range(200)]
    after = [len(process.scaled(3.0).times_ns(0, 10 * NS, Random(str(seed)))) for seed in range(200)]
    assert mean(after) == pytest.approx(3 * mean(before), rel=0.03)
    assert process.scaled(1.0) == process


def test_a_burst_cannot_be_smaller_than_one_request() -> None:
    process = arrivals.make(Spec(kind="bursts", params={"size": 8, "every_s": 1}))
    assert process.least_factor() == 1 / 8
    assert len(process.scaled(1 / 8).times_ns(0, 3 * NS, Random("1"))) == 3
