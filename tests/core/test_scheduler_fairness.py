"""Fairness inside a class: the bound, the traps, and what happens when a safeguard is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Request
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies.article_drr import ArticleDrr
from agentload.scheduler.policies.drr import DeficitRoundRobin
from agentload.scheduler.policies.fifo import Fifo
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from scheduler_broken import (
    BanksCredit,
    ForgetsDebt,
    ForgivesTheCapped,
    IgnoresCost,
    JoinsAtVirtualTime,
    NeverSettles,
    RefundsForgivenCharges,
    Unlearning,
)
from scheduler_kit import Scene, gateway, serve_backlogged
from scheduler_scenes import (
    UnknownCosts,
    broken_bounds,
    constant,
    liars_share,
    pareto,
    picks_after_refund,
    picks_until_ten_services,
    picks_while_in_debt,
    quiet_tenants_wait,
    share_after_idling,
    share_at_the_cap,
    shares,
    small,
    underestimators_share,
)

# ---------------------------------------------------------------- shares


@pytest.mark.parametrize("policy", [StartTimeFairQueue, DeficitRoundRobin])
@pytest.mark.parametrize("cost", [constant, small, pareto])
def test_three_tenants_get_50_30_20_percent_of_the_work(
    cost: Callable[[Random], int], policy: type[FairQueue]
) -> None:
    share = shares(policy, cost)
    assert share == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.005)


@pytest.mark.parametrize("cost", [constant, small, pareto])
def test_the_articles_choose_next_serves_the_largest_weight_alone(cost: Callable[[Random], int]) -> None:
    # Each of its calls adds ten units of credit, which few of these jobs cost, and none of the small ones.
    assert shares(ArticleDrr, cost) == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.0}, abs=0.001)


def test_the_articles_choose_next_is_right_where_a_job_costs_what_a_call_adds() -> None:
    assert shares(ArticleDrr, lambda _: 10_000) == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.005)


def test_fifo_serves_whoever_comes_whatever_its_weight() -> None:
    share = shares(Fifo, constant)
    assert share["c"] > 0.3


def test_shares_are_of_work_and_not_of_turns() -> None:
    def by_tenant(policy: type[FairQueue]) -> float:
        scene = Scene(gateway(slots=4, tenant_slots=4), policy=policy)
        serve_backlogged(scene, ["a", "b"], 2_000, lambda t: 10_000 if t == "b" else 1_000, depth=10)
        return scene.work["b"] / sum(scene.work.values())

    assert by_tenant(StartTimeFairQueue) == pytest.approx(0.5, abs=0.01)
    assert by_tenant(IgnoresCost) > 0.85


def test_a_cap_of_half_the_slots_leaves_a_share_of_a_half() -> None:
    assert share_at_the_cap(StartTimeFairQueue) == pytest.approx(0.5, abs=0.015)
    assert share_at_the_cap(ForgivesTheCapped) < 0.45


# ---------------------------------------------------------------- the bound


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.floats(0.1, 20), min_size=2, max_size=5),
    slots=st.integers(1, 8),
    widest=st.integers(1, 20_000),
    seed=st.integers(0, 2**16),
)
def test_backlogged_tenants_never_drift_apart_further_than_the_bound(
    weights: list[float], slots: int, widest: int, seed: int
) -> None:
    assert broken_bounds(StartTimeFairQueue, weights, slots, widest, seed) == 0


def test_the_bound_is_one_that_can_be_broken() -> None:
    assert broken_bounds(Fifo, [10.0, 1.0], 2, 1000, 3) == 1
    assert broken_bounds(IgnoresCost, [1.0, 1.0], 2, 10_000, 3) == 1


# ---------------------------------------------------------------- idling


def test_idling_banks_no_credit() -> None:
    # Joining up to two units behind the work clock is worth two of these jobs.
    assert share_after_idling(StartTimeFairQueue) == pytest.approx(0.5, abs=0.01)
    assert share_after_idling(BanksCredit) == 1.0


def test_debt_survives_idling() -> None:
    assert picks_while_in_debt(StartTimeFairQueue) == pytest.approx(9 * 99, abs=20)
    assert picks_while_in_debt(ForgetsDebt) < 150


def test_what_was_not_estimated_is_paid_afterwards() -> None:
    assert underestimators_share(StartTimeFairQueue, 4) == pytest.approx(0.5, abs=0.02)
    assert underestimators_share(StartTimeFairQueue, 1) == pytest.approx(0.5, abs=0.02)
    assert underestimators_share(NeverSettles, 4) > 0.9


def test_a_charge_that_was_forgiven_is_not_refunded_as_well() -> None:
    # Half of 500, and at most the sleeper credit of two units, which is twenty of these jobs.
    assert 240 <= picks_after_refund(StartTimeFairQueue) <= 280
    assert picks_after_refund(RefundsForgivenCharges) > 450


def test_a_refund_moves_a_waiting_tenant_ahead_at_once() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2))
    over = scene.submit("over", 60_000, real_tokens=100)
    hold = scene.submit("steady", 1000)
    for _ in range(3):
        scene.submit("steady", 1000)
        scene.submit("over", 1000)
    scene.end(over)
    scene.end(hold)
    for _ in range(2):
        scene.end(next(iter(scene.running.values())))
    assert Counter(scene.dispatched[2:]) == {"over": 2, "steady": 2}


# ---------------------------------------------------------------- a flood of new tenants


def test_a_flood_of_new_tenants_does_not_bury_an_old_one() -> None:
    newcomers = 100
    # Ten fair rounds, and once the sleeper credit: two units are twenty jobs of each.
    bound = newcomers * (10 + 20 + 3)
    assert picks_until_ten_services(StartTimeFairQueue, newcomers, 5_000) <= bound
    assert picks_until_ten_services(JoinsAtVirtualTime, newcomers, 5_000) == 5_000


# ---------------------------------------------------------------- unknown cost


@pytest.mark.parametrize("reported", [False, True])
def test_whoever_declares_too_little_gets_its_share_of_what_it_really_uses(reported: bool) -> None:
    assert liars_share(StartTimeFairQueue, reported=reported) == pytest.approx(0.5, abs=0.02)


def share_error_over_an_hour(policy: type[FairQueue], **core: Any) -> float:
    """Of unknown costs: an hour of virtual time, after five minutes in which the estimates form."""
    load = UnknownCosts(policy, **core)
    load.play(300)
    load.count_from_here()
    load.play(3_900)
    return load.share_error()


@pytest.mark.parametrize("policy", [StartTimeFairQueue, DeficitRoundRobin])
def test_shares_of_unknown_costs_are_right_to_half_a_per_cent_over_an_hour(policy: type[FairQueue]) -> None:
    assert share_error_over_an_hour(policy) <= 0.005


def test_shares_of_unknown_costs_that_are_never_corrected_are_off_by_a_quarter_and_more() -> None:
    assert share_error_over_an_hour(NeverSettles, admission=Unlearning) > 0.25


def test_an_overrun_is_charged_while_it_is_produced() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2))
    long = scene.submit("long", 100, real_tokens=5_000)
    hold = scene.submit("other", 100)
    waiting: list[Request] = []
    for _ in range(3):
        waiting += [scene.submit("long", 100), scene.submit("other", 100)]
    scene.admission.progress(scene.now_ns, long.id, 5_000)
    scene.end(hold)
    for _ in range(2):
        scene.end(next(r for r in scene.running.values() if r is not long))
    assert scene.dispatched[2:] == ["other"] * 3


# ---------------------------------------------------------------- a noisy neighbour


def test_a_flood_keeps_nobody_waiting_but_itself() -> None:
    assert quiet_tenants_wait(StartTimeFairQueue) <= 2
    assert quiet_tenants_wait(Fifo) > 30
