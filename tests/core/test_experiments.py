"""Expectations of published experiments: three answers, and the worst seed decides."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload import experiments
from agentload.evidence.expectations import Expectation, Found, Value, at_least, at_most, divided
from agentload.model import Status

NUMBERS = st.floats(min_value=-1e9, max_value=1e9)


def least(*values: Value) -> Expectation:
    return at_least("it", values, 10, published="12", exchange=("a", "b"))


def most(*values: Value) -> Expectation:
    return at_most("it", values, 10, published="8", exchange=("a", "b"))


def test_the_seed_that_comes_closest_to_breaking_it_decides() -> None:
    assert (least(11, 12).status, least(11, 12).measured) == (Status.PASSED, 11)
    assert (least(12, 9).status, least(12, 9).measured) == (Status.FAILED, 9)
    assert (most(8, 10).status, most(8, 10).measured) == (Status.PASSED, 10)
    assert (most(8, 11).status, most(8, 11).measured) == (Status.FAILED, 11)


def test_nothing_measured_is_inconclusive_but_hides_no_failure() -> None:
    for empty in (least(), most(), least(None), most(12, None), least(11, None)):
        assert empty.status is (Status.FAILED if empty.measured == 12 else Status.INCONCLUSIVE)


def test_never_is_more_than_any_bound() -> None:
    assert most(1, math.inf).status is Status.FAILED
    assert (most(1, math.inf).measured, most(1, math.inf).censored) == (None, True)
    assert least(math.inf).status is Status.PASSED


@given(st.lists(NUMBERS, min_size=1), NUMBERS)
def test_it_passes_exactly_when_every_seed_does(values: list[float], bound: float) -> None:
    def passed(relation: bool) -> bool:
        of = at_least if relation else at_most
        return of("it", values, bound, published="", exchange=("a", "b")).status is Status.PASSED

    assert passed(True) == all(value >= bound for value in values)
    assert passed(False) == all(value <= bound for value in values)


@pytest.mark.parametrize(
    ("over", "under", "ratio"),
    [(6, 2, 3), (None, 2, None), (6, None, None), (0, 0, None), (1, 0, math.inf), (math.inf, math.inf, None)],
)
def test_ratios_know_what_cannot_be_said(over: Value, under: Value, ratio: Value) -> None:
    assert divided(over, under) == ratio


def test_arms_are_exchanged_seed_by_seed() -> None:
    found = Found([{"a": {"x": 1}, "b": {"x": 2}}, {"a": {"x": 3}, "b": {"x": None}}])
    assert found.exchanged("a", "b").values("a", "x") == [2, None]
    assert found.exchanged("a", "b").ratios("x", "a", "b") == [2, None]
    assert found.values("a", "x") == [1, 3]


@pytest.mark.parametrize("name", experiments.SEAM.names())
def test_every_arm_can_be_played_and_says_what_it_is(name: str) -> None:
    experiment = experiments.SEAM.get(name)()
    arms = experiment.arms()
    assert len({arm.name for arm in arms}) == len(arms) >= 2
    for arm in arms:
        assert arm.load().tenants
        assert arm.about
        assert arm.mutant is None or arm.parts is None
    assert experiment.source.paper
    assert experiment.columns
    assert (experiment.__doc__ or "").split("\n")[0].endswith("?")
