"""Checks of how tenants share: victims, shares, starvation."""

from __future__ import annotations

from math import comb
from random import Random
from typing import Any

import msgspec
import pytest

from agentload.checks.no_starvation import NoStarvation
from agentload.checks.service_gap import ServiceGap
from agentload.checks.victim_goodput import VictimGoodput
from agentload.checks.victim_latency import VictimLatency
from agentload.checks.weighted_share import WeightedShare
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import Outcome, Run, Status
from saturated import saturated_run

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
PHASES = {"baseline": 10.0, "noise": 10.0}
VICTIMS = {"quiet-1": 1.0, "quiet-2": 1.0, "flood": 1.0}


# ------------------------------------------------------------------------------------------ victims


def noisy(
    *,
    base_ms: float = 50.0,
    noise_ms: float = 50.0,
    slow: int = 0,
    slow_ms: float = 0.0,
    lost: int = 0,
    flood: bool = True,
    slow_victims: tuple[str, ...] = ("quiet-1", "quiet-2"),
) -> Run:
    """100 requests of each victim in each phase; in the noise the last `slow` drag, `lost` get none."""
    build = RunBuilder(profile(phases=PHASES, tenants=VICTIMS, only={"flood": ("noise",)}))
    for k in range(100):
        for victim in ("quiet-1", "quiet-2"):
            build.answered(victim, 90 * k, service_ms=base_ms)
            if k < lost and victim in slow_victims:
                build.refused(victim, 10_000 + 90 * k)
                continue
            late = k >= 100 - slow and victim in slow_victims
            build.answered(victim, 10_000 + 90 * k, service_ms=slow_ms if late else noise_ms)
    if flood:
        for k in range(50):
            build.answered("flood", 10_000 + 90 * k, wait_ms=500)
            build.refused("flood", 10_000 + 90 * k)
    return build.run()


def test_the_ratio_is_of_nearest_rank_p95s() -> None:
    # 190 of 200 at 60 ms: rank 190 is still 60 ms.
    verdict = VictimLatency().judge(noisy(base_ms=50, noise_ms=60, slow=5, slow_ms=900))
    assert (verdict.status, verdict.measured, verdict.n) == (PASSED, pytest.approx(1.2), 200)
    # One more on each side and rank 190 is 900 ms.
    verdict = VictimLatency().judge(noisy(base_ms=50, noise_ms=60, slow=6, slow_ms=900))
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(18.0))


def test_twice_the_baseline_passes_and_more_fails() -> None:
    assert VictimLatency().judge(noisy(base_ms=100, noise_ms=200)).status is PASSED
    assert VictimLatency().judge(noisy(base_ms=100, noise_ms=201)).status is FAILED


def test_twenty_milliseconds_are_never_held_against_a_gateway() -> None:
    assert VictimLatency().judge(noisy(base_ms=5, noise_ms=25)).status is PASSED  # 5 ×
    assert VictimLatency().judge(noisy(base_ms=5, noise_ms=25.1)).status is FAILED
    assert VictimLatency(grace_ms=0).judge(noisy(base_ms=5, noise_ms=25)).status is FAILED


def test_victims_that_are_never_answered_have_an_infinite_p95() -> None:
    verdict = VictimLatency().judge(noisy(lost=6))
    assert (verdict.status, verdict.measured, verdict.censored) == (FAILED, None, True)
    assert "12 of 200" in verdict.because
    assert VictimLatency().judge(noisy(lost=5)).status is PASSED, "a twentieth lost is goodput's business"


def test_one_victim_may_suffer_up_to_three_times() -> None:
    only = ("quiet-1",)
    spared = VictimLatency().judge(noisy(base_ms=100, slow=7, slow_ms=290, slow_victims=only))
    assert spared.status is PASSED
    hit = VictimLatency().judge(noisy(base_ms=100, slow=7, slow_ms=310, slow_victims=only))
    assert (hit.status, hit.measured, hit.bound) == (FAILED, pytest.approx(3.1), 3.0)
    assert "quiet-1" in hit.because


def test_a_single_victim_of_too_few_requests_is_not_judged_alone() -> None:
    run = noisy(base_ms=100, slow=7, slow_ms=310, slow_victims=("quiet-1",))
    run.records = [
        r for r in run.records if r.tenant != "quiet-1" or r.seq % 2 or r.ended_ns % 10**9 < 10**9 // 2
    ]
    counts = [sum(r.tenant == "quiet-1" and r.phase == p for r in run.records) for p in PHASES]
    assert min(counts) < 72
    assert VictimLatency().judge(run).status is PASSED


def test_a_baseline_that_refuses_proves_nothing() -> None:
    run = noisy(noise_ms=900)
    for record in [r for r in run.records if r.phase == "baseline"][:3]:
        record.outcome, record.status = Outcome.REJECTED, 429
    for check in (VictimLatency(), VictimGoodput()):
        verdict = check.judge(run)
        assert verdict.status is INCONCLUSIVE
        assert "3 of 200" in verdict.because
        assert "baseline" in verdict.because


def test_a_retried_refusal_in_the_baseline_counts_although_it_was_answered_in_the_end() -> None:
    run = noisy()
    for record in [r for r in run.records if r.phase == "baseline"][:3]:
        refused = msgspec.structs.replace(record, outcome=Outcome.REJECTED, status=429, final=False)
        record.attempt = 1
        run.records.append(refused)
    assert VictimLatency().judge(run).status is INCONCLUSIVE


def test_a_flood_that_does_not_saturate_proves_nothing() -> None:
    for check in (VictimLatency(), VictimGoodput()):
        verdict = check.judge(noisy(flood=False))
        assert verdict.status is INCONCLUSIVE
        assert "saturate" in verdict.because


def test_a_flood_that_is_let_through_while_the_victims_wait_does_saturate() -> None:
    build = RunBuilder(profile(phases=PHASES, tenants=VICTIMS, only={"flood": ("noise",)}))
    for k in range(100):
        build.answered("quiet-1", 90 * k)
        build.answered("quiet-1", 10_000 + 90 * k, wait_ms=30)
        build.answered("flood", 10_000 + 90 * k)
    verdict = VictimLatency(victims=("quiet-1",)).judge(build.run())
    assert (verdict.status, verdict.measured) == (PASSED, pytest.approx(1.6))


def test_without_a_ledger_a_queue_shows_as_time() -> None:
    run = noisy()
    run.ledger, run.ledger_available = [], False
    run.records = [r for r in run.records if r.outcome is Outcome.ANSWERED]
    assert VictimLatency().judge(run).status is PASSED  # the flood's 550 ms are over twice 50
    run.records = [r for r in run.records if r.tenant != "flood"]
    assert VictimLatency().judge(run).status is INCONCLUSIVE


def test_victims_that_could_not_be_sent_prove_nothing() -> None:
    run = noisy()
    for record in [r for r in run.records if r.tenant == "quiet-1"][:5]:
        record.outcome = Outcome.UNSENT
    verdict = VictimLatency().judge(run)
    assert verdict.status is INCONCLUSIVE
    assert "failed to send" in verdict.because


def test_nobody_in_both_phases_is_nobody_to_compare() -> None:
    build = RunBuilder(profile(phases=PHASES, tenants={"flood": 1.0}, only={"flood": ("noise",)}))
    assert "no tenant is active both" in VictimLatency().judge(build.run()).because


def test_goodput_needs_a_fall_of_two_points_that_is_no_accident() -> None:
    # Of 200: 4 lost are 2 points, p = C(200,4)/C(400,4) ≈ 0.06; 8: 4 points, p ≈ 0.004; 12: 6, p ≈ 0.0002.
    assert VictimGoodput().judge(noisy(lost=4, slow_victims=("quiet-1",))).status is PASSED
    assert VictimGoodput().judge(noisy(lost=4)).status is PASSED
    assert VictimGoodput(min_drop_points=7).judge(noisy(lost=6)).status is PASSED
    verdict = VictimGoodput().judge(noisy(lost=6))
    assert (verdict.status, verdict.measured, verdict.bound) == (FAILED, pytest.approx(6.0), 2.0)
    assert verdict.details["pooled"]["p"] == pytest.approx(comb(200, 12) / comb(400, 12), abs=1e-6)


def test_goodput_finds_the_one_victim_that_pays() -> None:
    verdict = VictimGoodput().judge(noisy(lost=12, slow_victims=("quiet-2",)))
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(12.0))
    assert verdict.because.startswith("quiet-2")


# ------------------------------------------------------------------------------------------- shares

WEIGHTS = {"a": 5.0, "b": 3.0, "c": 2.0}


def chat(_: str, random: Random) -> int:
    return 38 + int(random.random() * 17)


def ten_times(tenant: str, random: Random) -> int:
    return chat(tenant, random) * (10 if tenant == "c" else 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cost", [chat, ten_times])
def test_fair_queueing_passes(seed: int, cost: Any) -> None:
    run = saturated_run("sfq", WEIGHTS, cost, seed=seed)
    share = WeightedShare().judge(run)
    assert share.status is PASSED, share.because
    assert share.measured is not None
    assert share.measured < 1.0
    assert ServiceGap().judge(run).status is PASSED
    assert NoStarvation().judge(run).status is PASSED


@pytest.mark.parametrize("policy", ["fifo", "round-robin"])
@pytest.mark.parametrize("cost", [chat, ten_times])
def test_policies_that_know_no_weights_fail(policy: Any, cost: Any) -> None:
    run = saturated_run(policy, WEIGHTS, cost)
    assert WeightedShare().judge(run).status is FAILED
    assert ServiceGap().judge(run).status is FAILED


def test_fair_per_request_is_unfair_by_work() -> None:
    run = saturated_run("round-robin", {"a": 1.0, "b": 1.0, "c": 1.0}, ten_times)
    verdict = WeightedShare().judge(run)
    assert verdict.status is FAILED
    shares = verdict.details["phases"]["load"]["tenants"]["c"]
    assert shares["request_share"] == pytest.approx(1 / 3, abs=0.01)
    assert shares["work_share"] == pytest.approx(10 / 12, abs=0.01)
    assert WeightedShare(work="requests").judge(run).status is PASSED


def test_shares_by_hand() -> None:
    """300 calls of 40 tokens in turns a b c: a third each, 16.7 points below the 50 % that a should get."""
    check, run = WeightedShare.counterexample()
    verdict = check.judge(run)
    assert verdict.measured == pytest.approx(50 - 100 / 3)
    # C = 4, Σ work = 12,000: (4 + 1)/12,000 · (½·40 + ½·80) = 2.5 points, below the 3 that pass anyway.
    assert verdict.bound == 3.0
    assert verdict.details["phases"]["load"]["tenants"]["a"]["fair_queueing_points"] == pytest.approx(2.5)
    assert verdict.details["phases"]["load"]["in_service"] == 4


def test_between_the_tolerance_and_what_fair_queueing_may_do_nothing_follows() -> None:
    # In turns of seven: 42.9 % instead of 50 % for a, in a stretch in which 15 points are possible.
    build = RunBuilder(profile(tenants={"a": 1.0, "b": 1.0}, phases={"load": 4.0}))
    build.dispatches("abbabab" * 10, every_ms=50, slots=20)
    for tenant in "ab":
        build.ended(tenant, 3_000, Outcome.UNFINISHED)
    run = build.run()
    assert WeightedShare().judge(run).status is INCONCLUSIVE
    assert WeightedShare(tolerance_points=10).judge(run).status is PASSED
    assert WeightedShare(within_points=5).judge(run).status is FAILED
    assert WeightedShare(within_points=8).judge(run).status is PASSED


def test_a_tenant_that_asks_for_less_than_its_share_is_no_victim() -> None:
    build = RunBuilder(profile(tenants={"modest": 1.0, "greedy": 1.0}))
    for k in range(200):
        build.answered("greedy", 40 * k, wait_ms=200)
    for k in range(10):
        build.answered("modest", 800 * k, wait_ms=5)
    verdict = WeightedShare().judge(build.run())
    assert verdict.status is INCONCLUSIVE
    assert "never all backlogged" in verdict.because
    assert NoStarvation().judge(build.run()).status is PASSED


def test_a_named_phase_without_a_contest_is_not_passed_over() -> None:
    build = RunBuilder(profile(tenants=WEIGHTS, phases={"load": 7.0, "rest": 5.0}))
    build.dispatches("abacabacab" * 30, every_ms=20)
    for tenant in "abc":
        build.ended(tenant, 5_500, Outcome.UNFINISHED, after_ms=1_500)
    run = build.run()
    assert WeightedShare().judge(run).status is PASSED
    assert WeightedShare(phases=("load",)).judge(run).status is PASSED
    assert WeightedShare(phases=("load", "rest")).judge(run).status is INCONCLUSIVE
    assert ServiceGap(phases=("load", "rest")).judge(run).status is INCONCLUSIVE


def test_the_gap_by_hand() -> None:
    """Turns a b c at weights 5, 3, 2: per round a gets 8 and c 20 tokens per weight, so 12 more apart."""
    check, run = ServiceGap.counterexample()
    verdict = check.judge(run)
    pairs = {tuple(p["tenants"]): p for p in verdict.details["phases"]["load"]["pairs"]}
    rounds = 100
    assert pairs["a", "c"]["gap"] == pytest.approx(12 * rounds, abs=20)
    assert pairs["a", "c"]["bound"] == pytest.approx(5 * (40 / 5 + 40 / 2))
    assert pairs["a", "c"]["growth"] == pytest.approx(12 * rounds, rel=0.02)
    assert pairs["a", "b"]["gap"] == pytest.approx((40 / 3 - 8) * rounds, abs=20)


# --------------------------------------------------------------------------------------- starvation


def waiting_run(*services_ms: float, until_ms: float = 9_000) -> Run:
    """A tenant with work waiting from 0 to `until_ms`, served at the given instants; another one always."""
    build = RunBuilder(profile(tenants={"poor": 1.0, "rich": 1.0}))
    for k in range(80):
        build.answered("rich", 100 * k, wait_ms=100)
    build.ended("poor", 0, Outcome.ABANDONED, after_ms=until_ms)
    for at_ms in services_ms:
        build.answered("poor", 0, wait_ms=at_ms)
    return build.run()


@pytest.mark.parametrize(
    ("services_ms", "longest_s"),
    [((1_000, 2_000, 8_500), 6.5), ((4_000,), 5.0), ((), 9.0), ((3_000, 6_000), 3.0), ((5_500, 6_000), 5.5)],
)
def test_the_longest_wait_between_services(services_ms: tuple[float, ...], longest_s: float) -> None:
    verdict = NoStarvation().judge(waiting_run(*services_ms))
    assert verdict.measured == pytest.approx(longest_s)
    assert verdict.status is (FAILED if longest_s > 5 else PASSED)
    assert NoStarvation(max_wait_s=10).judge(waiting_run(*services_ms)).status is PASSED


def test_nobody_may_be_left_with_nothing_even_if_refused_at_once() -> None:
    build = RunBuilder(profile(tenants={"poor": 1.0, "rich": 1.0}))
    for k in range(20):
        build.answered("rich", 100 * k)
        build.refused("poor", 100 * k)
    verdict = NoStarvation().judge(build.run())
    assert verdict.status is FAILED
    assert verdict.because.startswith("poor got no answer")
    assert (verdict.measured, verdict.censored) == (None, True), "never, and not 0 s within the bound"
    build.answered("poor", 5_000)
    assert NoStarvation().judge(build.run()).status is PASSED


def test_work_that_can_never_be_served_starves_nobody() -> None:
    build = RunBuilder(profile(tenants={"wide": 1.0, "rich": 1.0}))
    for k in range(30):
        build.answered("rich", 100 * k)
        build.refused("wide", 100 * k, status=413, retry_after=None)
    assert NoStarvation().judge(build.run()).status is PASSED
