"""Every check against runs small enough to be judged with a pencil."""

from __future__ import annotations

from math import comb
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.checks import SEAM, Check, PhaseRef, references
from agentload.checks.bounded_queue import BoundedQueue
from agentload.checks.no_starvation import NoStarvation
from agentload.checks.own_answer import OwnAnswer
from agentload.checks.provider_limit import ProviderLimit
from agentload.checks.refusal_latency import RefusalLatency
from agentload.checks.retry_after_present import RetryAfterPresent
from agentload.checks.retry_after_syntax import RetryAfterSyntax, well_formed
from agentload.checks.service_gap import ServiceGap
from agentload.checks.status_codes import StatusCodes
from agentload.checks.stream_integrity import StreamIntegrity
from agentload.checks.victim_goodput import VictimGoodput
from agentload.checks.victim_latency import VictimLatency
from agentload.checks.weighted_share import WeightedShare
from agentload.errors import UsageError
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import check_name
from agentload.explain import explain
from agentload.model import CallEnding, Outcome, Run, Status, Verdict
from fake_provider.config import ProviderConfig
from saturated import saturated_run

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
PHASES = {"baseline": 10.0, "noise": 10.0}
VICTIMS = {"quiet-1": 1.0, "quiet-2": 1.0, "flood": 1.0}

every_check = pytest.mark.parametrize("name", SEAM.names())


# ------------------------------------------------------------ what holds for every check, new ones too


@every_check
def test_its_example_passes(name: str) -> None:
    check, run = SEAM.get(name).example()
    verdict = check.judge(run)
    assert verdict.status is PASSED, verdict.because


@every_check
def test_its_counterexample_fails_with_the_numbers_and_somewhere_to_look(name: str) -> None:
    check, run = SEAM.get(name).counterexample()
    verdict = check.judge(run)
    assert verdict.status is FAILED, verdict.because
    assert verdict.check == name == check_name(type(check))
    assert verdict.measured is not None or verdict.censored
    assert verdict.bound is not None
    assert verdict.measured is None or verdict.measured > verdict.bound
    assert verdict.unit
    assert verdict.n > 0
    assert verdict.evidence


@every_check
def test_too_little_to_go_by_is_inconclusive_and_says_what_is_missing(name: str) -> None:
    check, run = SEAM.get(name).too_few()
    verdict = check.judge(run)
    assert verdict.status is INCONCLUSIVE
    assert len(verdict.because) > 20


@every_check
def test_an_empty_run_is_inconclusive(name: str) -> None:
    check, run = SEAM.get(name).example()
    empty = msgspec.structs.replace(run, records=[], ledger=[], samples=[], jobs=[], tools=[])
    assert check.judge(empty).status is INCONCLUSIVE


@every_check
def test_its_verdict_can_be_written_as_json(name: str) -> None:
    check, run = SEAM.get(name).counterexample()
    verdict = check.judge(run)
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


@every_check
def test_judging_changes_nothing_and_says_the_same_twice(name: str) -> None:
    check, run = SEAM.get(name).counterexample()
    before = msgspec.json.encode([run.records, run.ledger, run.jobs, run.tools])
    first = check.judge(run)
    assert check.judge(run) == first
    assert msgspec.json.encode([run.records, run.ledger, run.jobs, run.tools]) == before


@every_check
def test_it_says_when_it_passes_and_all_its_parameters_have_defaults(name: str) -> None:
    kind = SEAM.get(name)
    assert (kind.__doc__ or "").startswith("Passes when ")
    assert (kind.__doc__ or "").splitlines()[0].endswith(".")
    assert isinstance(kind(), Check)


@every_check
def test_it_can_be_explained(name: str) -> None:
    text = explain(name)
    assert text.startswith(name)
    for part in ("Passes when", "Parameters", "severity", "Counterexample", "Verdict", "failed: "):
        assert part in text
    assert max(len(line) for line in text.splitlines()) < 200


def test_its_paragraphs_are_filled_to_the_width() -> None:
    told = explain("provider-limit", 60).partition("\n\nNeeds")[0]
    assert told.split() == explain("provider-limit").partition("\n\nNeeds")[0].split()
    assert 50 < max(len(line) for line in told.splitlines()) <= 60


def test_explaining_an_unknown_check_suggests_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'victim-latency'"):
        explain("victim-latenzy")


def test_parameters_that_name_phases_are_marked_as_such() -> None:
    found = {name for name, kind in references(VictimLatency) if kind is PhaseRef}
    assert found == {"baseline", "noise"}
    assert {name for name, _ in references(WeightedShare)} == {"tenants", "phases"}


# ---------------------------------------------------------------------------------------- victims


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


# ------------------------------------------------------------------------------------------ shares

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


# -------------------------------------------------------------------------------------- starvation


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


# ------------------------------------------------------------------------------------------- queue


def queue_run(
    *, per_s: float, served_per_s: float, seconds: float = 10.0, accept: int = 10_000, max_queue: int = 256
) -> Run:
    """Deterministic arrivals and services; beyond `accept` waiting, the gateway refuses."""
    build = RunBuilder(profile(phases={"load": seconds}, max_queue=max_queue))
    free_ms, waiting, end_ms = 0.0, list[float](), seconds * 1000
    for k in range(int(per_s * seconds)):
        at_ms = 1000 * k / per_s
        waiting = [dispatch for dispatch in waiting if dispatch > at_ms]
        if len(waiting) >= accept:
            build.refused("a", at_ms)
            continue
        dispatch = max(at_ms, free_ms)
        free_ms = dispatch + 1000 / served_per_s
        waiting.append(dispatch)
        if dispatch < end_ms:
            build.answered("a", at_ms, wait_ms=dispatch - at_ms, service_ms=5)
        else:
            build.ended("a", at_ms, Outcome.UNFINISHED, after_ms=end_ms - at_ms)
    return build.run()


def test_a_queue_that_is_never_needed_passes() -> None:
    verdict = BoundedQueue().judge(queue_run(per_s=40, served_per_s=80))
    assert (verdict.status, verdict.measured) == (PASSED, 0)


def test_a_full_queue_that_refuses_passes_at_its_bound() -> None:
    verdict = BoundedQueue().judge(queue_run(per_s=100, served_per_s=20, accept=256))
    assert (verdict.status, verdict.measured, verdict.bound) == (PASSED, 256, 256 + 16)


def test_a_queue_beyond_its_bound_fails() -> None:
    verdict = BoundedQueue().judge(queue_run(per_s=100, served_per_s=20, accept=280))
    assert (verdict.status, verdict.measured, verdict.unit) == (FAILED, 280, "requests")
    assert (
        BoundedQueue(max_depth=270).judge(queue_run(per_s=100, served_per_s=20, accept=280)).status is PASSED
    )


def test_a_queue_that_met_no_bound_and_still_grows_decides_nothing() -> None:
    verdict = BoundedQueue().judge(queue_run(per_s=40, served_per_s=20))  # 200 at the end, 20 more a second
    assert verdict.status is INCONCLUSIVE
    assert "growing by 20" in verdict.because


def test_a_request_that_waits_too_long_fails_however_short_the_queue() -> None:
    run = queue_run(per_s=4, served_per_s=2, accept=4)
    assert BoundedQueue().judge(run).status is PASSED
    verdict = BoundedQueue(max_age_s=1.5).judge(run)
    assert (verdict.status, verdict.unit) == (FAILED, "s")
    assert verdict.measured == pytest.approx(1.75, abs=0.3)


def test_a_gateway_that_holds_all_that_the_generator_may_send_fails() -> None:
    run = queue_run(per_s=40, served_per_s=20)
    run.health.capped, run.health.in_flight_cap = 100, 200
    verdict = BoundedQueue(max_depth=5_000).judge(run)
    assert verdict.status is FAILED
    assert verdict.details["stands_under_any_load"] is True
    assert "cap of 200" in verdict.because


# ---------------------------------------------------------------------------------------- refusals


def refusals(quick: int, slow: int) -> Run:
    build = RunBuilder(profile(phases={"load": 60.0}))
    for k in range(quick + slow):
        build.refused("a", 50 * k, after_ms=3 if k < quick else 400)
    return build.run()


@pytest.mark.parametrize(
    ("quick", "slow", "status"),
    [
        (20, 0, PASSED),
        (19, 0, INCONCLUSIVE),
        (99, 1, INCONCLUSIVE),
        (95, 5, INCONCLUSIVE),  # P(X ≥ 5 | 100, 1 %) = 0.0034
        (94, 6, FAILED),  # P(X ≥ 6 | 100, 1 %) = 0.0005
        (396, 4, PASSED),  # rank 396 of 400 is a quick one
        (395, 5, FAILED),
    ],
)
def test_how_many_slow_refusals_are_too_many(quick: int, slow: int, status: Status) -> None:
    assert RefusalLatency().judge(refusals(quick, slow)).status is status


def test_expiry_in_the_queue_is_no_refusal() -> None:
    build = RunBuilder(profile())
    for k in range(30):
        build.refused("a", 100 * k)
        build.refused("a", 100 * k, after_ms=3_000, status=504)
    verdict = RefusalLatency().judge(build.run())
    assert (verdict.status, verdict.n) == (PASSED, 30)


def test_only_refusals_that_invite_a_retry_need_retry_after() -> None:
    build = RunBuilder(profile())
    build.refused("a", 0, status=402, retry_after=None)
    build.refused("a", 0, status=413, retry_after=None)
    assert RetryAfterPresent().judge(build.run()).status is INCONCLUSIVE
    build.refused("a", 0, status=503)
    assert RetryAfterPresent().judge(build.run()).status is PASSED
    assert RetryAfterPresent(min_refusals=2).judge(build.run()).status is INCONCLUSIVE
    build.refused("a", 0, status=503, retry_after=None)
    verdict = RetryAfterPresent().judge(build.run())
    assert (verdict.status, verdict.measured, verdict.n) == (FAILED, 1, 2)


def test_a_warm_up_is_not_held_against_anybody() -> None:
    build = RunBuilder(profile(phases={"warm-up": 1.0, "load": 1.0}))
    build.refused("a", 500, retry_after=None)
    build.refused("a", 1_500)
    assert RetryAfterPresent().judge(build.run()).status is PASSED


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "1",
        "120",
        "007",
        " 3\t",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ],
)
def test_what_rfc_9110_allows(value: str) -> None:
    assert well_formed(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "+1",
        "0.35",
        "1e3",
        "5s",
        "in 5 seconds",
        "1, 2",
        "٣",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "1994-11-06T08:49:37Z",
    ],
)
def test_what_rfc_9110_does_not_allow(value: str) -> None:
    assert not well_formed(value)


def test_unwise_values_are_noted_but_pass() -> None:
    build = RunBuilder(profile())
    for value in ("0", "500", "3"):
        build.refused("a", 0, retry_after=value)
    build.refused("a", 0, retry_after="Sun, 06 Nov 1994 08:49:37 GMT").retry_after_s = -1e9
    verdict = RetryAfterSyntax().judge(build.run())
    assert verdict.status is PASSED
    assert verdict.details["unwise"] == {"zero": 1, "past": 1, "over_cap": 1}
    assert "not wise: 1 of 0 seconds, 1 with a date gone by, 1 over the cap" in verdict.because
    assert len(verdict.evidence) == 3


# ------------------------------------------------------------------------------------ the provider


def offered(calls: list[tuple[float, int]], *, per_minute: float = 600, bucket_s: float = 4.0) -> Run:
    """(at_ms, tokens) of each call, all admitted."""
    provider = ProviderConfig(tokens_per_minute=per_minute, bucket_s=bucket_s)
    build = RunBuilder(profile(provider=provider))
    for at_ms, tokens in calls:
        build.answered("a", at_ms, input_tokens=tokens, output_tokens=0)
    return build.run()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9_999), st.integers(1, 40)), min_size=20, max_size=40))
def test_the_envelope_is_the_worst_of_all_windows(calls: list[tuple[int, int]]) -> None:
    """By brute force: offered in [s, t] minus rate · (t − s), over every pair of calls."""
    verdict = ProviderLimit().judge(offered([(float(at), tokens) for at, tokens in calls]))
    instants = sorted({at for at, _ in calls})
    worst = max(
        sum(tokens for at, tokens in calls if start <= at <= end) - 10 * (end - start) / 1000
        for start in instants
        for end in instants
        if start <= end
    )
    assert verdict.details["envelopes"][0]["peak"] == pytest.approx(worst, abs=0.06)
    assert verdict.status is (FAILED if worst > 40 * 1.02 else PASSED)


def test_a_full_bucket_and_the_rate_after_it_is_legal() -> None:
    burst, steady = [(0.0, 40)], [(1_000.0 * k, 10) for k in range(1, 30)]
    verdict = ProviderLimit().judge(offered(burst + steady))
    assert (verdict.status, verdict.measured) == (PASSED, pytest.approx(40))
    assert ProviderLimit().judge(offered([*burst, *steady, (15_000, 2)])).status is FAILED


def test_calls_that_the_provider_refuses_were_offered_all_the_same() -> None:
    run = offered([(2_500.0 * k, 10) for k in range(30)], per_minute=600)
    build = RunBuilder(run.profile)
    build.ledger = run.ledger
    build.call(None, 10_000, 10_001, CallEnding.THROTTLED, charged_tokens=60, status=429)
    assert ProviderLimit().judge(build.run()).status is FAILED


def test_refusals_by_the_provider_are_bounded_too() -> None:
    build = RunBuilder(profile(provider=ProviderConfig(slots=4)))
    for k in range(98):
        build.answered("a", 100 * k)
    build.call(None, 10, 11, CallEnding.THROTTLED, status=503)
    verdict = ProviderLimit(max_refused=0.02).judge(build.run())
    assert (verdict.status, verdict.unit) == (PASSED, "%")
    verdict = ProviderLimit().judge(build.run())
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(100 / 99))


def test_a_provider_without_limits_proves_nothing() -> None:
    verdict = ProviderLimit().judge(offered([(10.0 * k, 5) for k in range(30)]))
    assert verdict.status is FAILED
    build = RunBuilder(profile(provider=ProviderConfig()))
    for k in range(30):
        build.answered("a", 10 * k)
    verdict = ProviderLimit().judge(build.run())
    assert verdict.status is INCONCLUSIVE
    assert "no limit" in verdict.because


def test_whether_the_limit_ever_bound_is_said() -> None:
    busy = ProviderLimit().judge(offered([(250.0 * k, 2) for k in range(40)])).details["busiest"]
    assert (busy["phase"], busy["utilisation"], busy["bound"]) == ("load", pytest.approx(0.8), False)
    verdict = ProviderLimit().judge(offered([(500.0 * k, 5) for k in range(20)]))
    assert verdict.details["busiest"]["bound"] is True


def test_requests_are_limited_as_tokens_are() -> None:
    build = RunBuilder(profile(provider=ProviderConfig(requests_per_minute=60, bucket_s=10)))
    for k in range(20):
        build.answered("a", k)
    verdict = ProviderLimit().judge(build.run())
    assert (verdict.status, verdict.unit, verdict.measured) == (
        FAILED,
        "requests",
        pytest.approx(20, abs=0.1),
    )


def test_every_model_has_its_own_bucket() -> None:
    run = offered([(1.0 * k, 4) for k in range(20)])
    assert ProviderLimit().judge(run).status is FAILED
    for k, call in enumerate(run.ledger):
        call.model = ("small", "large")[k % 2]
    assert ProviderLimit().judge(run).status is PASSED


# ------------------------------------------------------------------------------------- the answers


def streamed(*, received: int, ending: CallEnding, produced: int, declared: int | None = None) -> Run:
    """One answer that claims to be complete, of a request that wants 20 tokens."""
    build = RunBuilder(profile())
    record = build.ended("a", 0, Outcome.ANSWERED, after_ms=100, status=200)
    record.output_tokens, record.planned_output_tokens, record.declared_output_tokens = received, 20, declared
    build.call(record, 0, 100, ending, output_tokens=produced)
    return build.run()


@pytest.mark.parametrize(
    ("received", "ending", "produced", "declared", "status"),
    [
        (20, CallEnding.COMPLETED, 20, None, PASSED),
        (12, CallEnding.COMPLETED, 12, None, PASSED),  # the gateway asked for less: whole all the same
        (12, CallEnding.COMPLETED, 20, None, FAILED),  # swallowed by the gateway
        (7, CallEnding.CUT, 7, None, FAILED),
        (
            7,
            CallEnding.CANCELLED,
            7,
            None,
            FAILED,
        ),  # the gateway's own timeout, sold as finish_reason: length
        (20, CallEnding.CANCELLED, 20, None, PASSED),  # closed after the last token
        (16, CallEnding.CANCELLED, 16, 16, PASSED),  # max_tokens
    ],
)
def test_what_a_complete_answer_must_hold(
    received: int, ending: CallEnding, produced: int, declared: int | None, status: Status
) -> None:
    run = streamed(received=received, ending=ending, produced=produced, declared=declared)
    assert StreamIntegrity().judge(run).status is status


def test_a_second_call_that_completes_makes_up_for_the_first() -> None:
    run = streamed(received=20, ending=CallEnding.CUT, produced=7)
    build = RunBuilder(run.profile)
    build.ledger = run.ledger
    build.call(run.records[0], 50, 90, CallEnding.COMPLETED, output_tokens=20)
    assert StreamIntegrity().judge(run).status is PASSED


def test_somebody_elses_answer_is_one_too_many() -> None:
    check, run = OwnAnswer.counterexample()
    verdict = check.judge(run)
    assert (verdict.measured, verdict.n, verdict.details["tenants"]) == (1, 2, {"b": 1})


def answers(**change: Any) -> Run:
    """Thirty good answers and one that is changed."""
    build = RunBuilder(profile(provider=ProviderConfig(tokens_per_minute=6_000, bucket_s=2)))
    for k in range(31):
        build.answered("a", 100 * k)
    for name, value in change.items():
        setattr(build.records[-1], name, value)
    return build.run()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"status": 500, "outcome": Outcome.FAILED}, FAILED),
        ({"status": 502, "outcome": Outcome.FAILED}, PASSED),
        ({"status": 503, "outcome": Outcome.REJECTED}, PASSED),
        ({"outcome": Outcome.FAILED, "reason": "server_error"}, FAILED),  # an error in a plain 200
        ({"outcome": Outcome.FAILED, "stream": True}, PASSED),  # an error event after the first token
        ({"outcome": Outcome.FAILED, "stream": True, "first_token_ns": None}, FAILED),
        ({"outcome": Outcome.FAILED, "own_answer": False}, PASSED),  # own-answer's business
        ({"outcome": Outcome.TRUNCATED}, PASSED),
        ({"status": 429, "outcome": Outcome.REJECTED, "declared_output_tokens": 200}, PASSED),
        ({"status": 429, "outcome": Outcome.REJECTED, "declared_output_tokens": 201}, FAILED),
        ({"status": 413, "outcome": Outcome.REJECTED, "declared_output_tokens": 201}, PASSED),
    ],
)
def test_status_by_cause(change: dict[str, Any], status: Status) -> None:
    assert StatusCodes().judge(answers(**change)).status is status


def test_a_profile_may_say_what_is_impossible() -> None:
    refused = {"status": 429, "outcome": Outcome.REJECTED, "input_tokens": 60, "declared_output_tokens": 50}
    assert StatusCodes(impossible_tokens=110).judge(answers(**refused)).status is PASSED
    assert StatusCodes(impossible_tokens=109).judge(answers(**refused)).status is FAILED
