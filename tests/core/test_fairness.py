from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.evidence.contest import contests
from agentload.evidence.fairness import (
    all_backlogged,
    backlog,
    entitled_shares,
    gap_bound,
    jain,
    peak_in_service,
    served_work,
    services,
    share_bounds,
    shares,
    within,
)
from agentload.evidence.hidden_queue import waits
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import CallEnding, Outcome
from saturated import saturated_run

INF = math.inf
amounts = st.floats(0.0, 100.0)
tenants = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.floats(0.1, 10.0), amounts), min_size=1)


def by_bisection(
    capacity: float, weights: Mapping[str, float], demands: Mapping[str, float]
) -> dict[str, float]:
    """Brute force: the level at which everybody's min(demand, level · weight) adds up to the capacity."""
    if sum(demands.values()) <= capacity:
        return dict(demands)
    low, high = 0.0, max(demands[t] / weights[t] for t in demands)
    for _ in range(200):
        level = (low + high) / 2
        used = sum(min(demands[t], level * weights[t]) for t in demands)
        low, high = (level, high) if used < capacity else (low, level)
    return {t: min(demands[t], high * weights[t]) for t in demands}


@given(st.floats(0.1, 300.0), tenants)
def test_water_filling_is_what_bisection_finds(
    capacity: float, drawn: dict[str, tuple[float, float]]
) -> None:
    weights = {t: weight for t, (weight, _) in drawn.items()}
    demands = {t: demand for t, (_, demand) in drawn.items()}
    found = entitled_shares(capacity, weights, demands)
    expected = by_bisection(capacity, weights, demands)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_water_filling_by_hand() -> None:
    # 10 among three: the modest one gets its 2, the other two share 8 as 3 : 1.
    weights = {"a": 1.0, "b": 3.0, "c": 1.0}
    assert entitled_shares(10, weights, {"a": 2, "b": 50, "c": 50}) == pytest.approx({"a": 2, "b": 6, "c": 2})
    assert entitled_shares(10, weights, {"b": INF, "c": INF}) == pytest.approx({"b": 7.5, "c": 2.5})
    assert entitled_shares(10, weights, {"a": 1, "b": 1}) == pytest.approx({"a": 1, "b": 1})
    assert entitled_shares(10, weights, {}) == {}


def test_jain_by_hand() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([1] * 7 + [0]) == pytest.approx(0.875), (
        "starving one of eight looks good: never judge by this"
    )
    assert jain([0, 0]) == 1


def test_served_work_is_what_the_provider_took_up() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0, input_tokens=30, output_tokens=12)
    record = build.ended("b", 100, Outcome.ABANDONED)
    build.call(record, 110, 200, CallEnding.CANCELLED, input_tokens=30, output_tokens=5, charged_tokens=78)
    build.call(record, 120, 121, CallEnding.THROTTLED, status=429)
    build.call(None, 130, 140, CallEnding.COMPLETED)
    found = services(build.ledger)
    assert served_work(found, "abc") == {"a": 42, "b": 35, "c": 0}
    assert served_work(services(build.ledger, "charged"), "ab") == {"a": 42, "b": 78}
    assert served_work(services(build.ledger, "requests"), "ab") == {"a": 1, "b": 1}
    assert [service.tenant for service in within(found, (0, 110 * MS))] == ["a"]
    assert [service.tenant for service in within(found, (1, 111 * MS))] == ["b"]


def test_shares_of_nothing_are_nothing() -> None:
    assert shares({"a": 0, "b": 0}) == {"a": 0, "b": 0}
    assert shares({"a": 3, "b": 1}) == {"a": 0.75, "b": 0.25}


def test_a_tenant_is_backlogged_while_its_work_waits_in_the_gateway() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0, wait_ms=100)
    build.answered("a", 50, wait_ms=100)
    build.answered("b", 60, wait_ms=60)
    build.answered("b", 300, wait_ms=9)  # the way through an idle gateway
    waiting = backlog(waits(build.records, build.ledger))
    assert waiting == {"a": [(0, 150 * MS)], "b": [(60 * MS, 120 * MS)]}
    assert all_backlogged(waiting, "ab", (0, 100 * MS)) == [(60 * MS, 100 * MS)]
    assert all_backlogged(waiting, "abc", (0, 100 * MS)) == []


def test_peak_in_service_counts_calls_at_the_provider() -> None:
    build = RunBuilder(profile())
    for at_ms in (0, 10, 20):
        build.answered("a", at_ms, service_ms=15)
    build.call(None, 12, 14, CallEnding.THROTTLED)
    assert peak_in_service(build.ledger, (0, 100 * MS)) == 2
    assert peak_in_service(build.ledger, (30 * MS, 100 * MS)) == 1
    assert peak_in_service([], (0, 1)) == 0


def test_the_bounds_by_hand() -> None:
    # 16 in service, costs of 60 tokens, weights 3 and 2: 17 · (60/3 + 60/2) = 850 tokens per weight.
    assert gap_bound(16, 60, 3, 60, 2) == pytest.approx(850)
    # Two equal tenants, one in service, cost 10, 1,000 served: 2/1,000 · (½·10 + ½·10) = 2 points.
    assert share_bounds(1, {"a": 1, "b": 1}, {"a": 10, "b": 10}, 1000) == pytest.approx(
        {"a": 0.02, "b": 0.02}
    )
    assert share_bounds(1, {"a": 1, "b": 1}, {"a": 10, "b": 10}, 0) == {"a": INF, "b": INF}


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=2), st.data())
def test_a_share_bound_is_the_most_that_the_pairs_allow(weights: dict[str, int], data: st.DataObject) -> None:
    """Any split in which every pair keeps its gap bound keeps the share bound too."""
    costs = {t: float(data.draw(st.integers(1, 20))) for t in weights}
    served = {t: data.draw(st.floats(100.0, 5000.0)) for t in weights}
    total = sum(served.values())
    entitled, got, bounds = shares(weights), shares(served), share_bounds(4, weights, costs, total)
    kept = all(
        abs(served[i] / weights[i] - served[j] / weights[j])
        <= gap_bound(4, costs[i], weights[i], costs[j], weights[j])
        for i in weights
        for j in weights
        if i < j
    )
    if kept:
        assert all(abs(got[t] - entitled[t]) <= bounds[t] + 1e-9 for t in weights)


@pytest.mark.parametrize("seed", range(4))
def test_fair_queueing_keeps_its_bound_over_every_interval(seed: int) -> None:
    """An SFQ written for the test, heavy-tailed costs: no pair drifts further apart than the bound says."""
    run = saturated_run(
        "sfq",
        {"a": 5.0, "b": 3.0, "c": 2.0},
        lambda _, random: min(400, int(20 / (1 - random.random()))),
        seed=seed,
        ms_per_token=1.0,
    )
    ((contest,), without) = contests(run, (), (), "tokens")
    assert without == []
    assert contest.seconds > 15
    assert contest.in_service == 16
    for i, j in (("a", "b"), ("a", "c"), ("b", "c")):
        gap, lowest, highest = 0.0, 0.0, 0.0
        for service in contest.services:
            if service.tenant in (i, j):
                gap += (1 if service.tenant == i else -1) * service.work / contest.weights[service.tenant]
                lowest, highest = min(lowest, gap), max(highest, gap)
        assert highest - lowest <= gap_bound(
            16, contest.costs[i], contest.weights[i], contest.costs[j], contest.weights[j]
        )
