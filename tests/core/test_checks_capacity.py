"""What a gateway makes of the provider's capacity: idle slots, goodput, leaks, caps and limits, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from agentload.checks.bounded_memory import MIB, BoundedMemory
from agentload.checks.capacity_leak import CapacityLeak
from agentload.checks.concurrency_cap import ConcurrencyCap
from agentload.checks.overload_goodput import OverloadGoodput
from agentload.checks.status_codes import StatusCodes
from agentload.checks.tenant_limit import TenantLimit
from agentload.checks.work_conserving import WorkConserving
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import CallEnding, Outcome, Run, Sample, Spec, Stall, Status
from fake_provider.config import ProviderConfig

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


# --------------------------------------------------------------------------------- work-conserving


def queueing(
    *,
    gap_ms: float,
    provider: ProviderConfig | None = None,
    tenants: tuple[str, ...] = ("a", "b"),
    calls: int = 40,
) -> Run:
    """One slot, 100 ms of service, a gap before each call; ten of each tenant always wait."""
    build = RunBuilder(
        profile(
            phases={"load": calls * (100 + gap_ms) / 1_000},
            tenants=dict.fromkeys(tenants, 1.0),
            provider=provider or ProviderConfig(slots=1),
        )
    )
    for k in range(calls):
        start_ms = gap_ms + k * (100 + gap_ms)
        build.answered(tenants[k % len(tenants)], 0, wait_ms=start_ms, service_ms=100)
    for tenant in tenants:
        for _ in range(10):
            build.ended(tenant, 0, Outcome.UNFINISHED, after_ms=calls * (100 + gap_ms))
    return build.run()


def test_idle_slot_time_beyond_ten_milliseconds_a_dispatch_is_waste() -> None:
    # 40 gaps of 20 ms in 4.8 s, of which work is eligible for all but the first 10 ms: 0.79 s idle, 0.4 s of
    # it allowed: 0.39 / 4.79.
    verdict = WorkConserving().judge(queueing(gap_ms=20))
    assert verdict.status is FAILED
    assert verdict.measured == pytest.approx(100 * 0.39 / 4.79)
    assert verdict.details["idle_slot_s"] == pytest.approx(0.79)
    assert verdict.details["dispatches"] == 40


def test_gaps_of_ten_milliseconds_are_the_way_there_and_back() -> None:
    verdict = WorkConserving().judge(queueing(gap_ms=10))
    assert (verdict.status, verdict.measured) == (PASSED, 0.0)


def test_a_slot_is_idle_only_for_as_much_work_as_waits() -> None:
    # Of four slots one works. One request waits: one of the three free slots could have served it.
    build = RunBuilder(profile(phases={"load": 4.0}, provider=ProviderConfig(slots=4)))
    for k in range(40):
        build.answered("a", 100 * k, service_ms=100)
    build.ended("b", 0, Outcome.UNFINISHED, after_ms=4_000)
    verdict = WorkConserving().judge(build.run())
    assert verdict.details["idle_slot_s"] == pytest.approx(3.99)
    assert verdict.measured == pytest.approx(100 * 3.99 / (4 * 3.99))


def test_work_of_a_tenant_at_its_cap_is_not_eligible() -> None:
    # Two of four slots are busy with a's calls, and two more of a's requests wait.
    build = RunBuilder(profile(phases={"load": 4.0}, provider=ProviderConfig(slots=4)))
    for k in range(80):
        build.answered("a", 100 * (k // 2), service_ms=100)
    for _ in range(2):
        build.ended("a", 0, Outcome.UNFINISHED, after_ms=4_000)
    run = build.run()
    assert WorkConserving(tenant_slots=2).judge(run).status is INCONCLUSIVE, "nothing eligible waits"
    verdict = WorkConserving(tenant_slots=3).judge(run)
    assert verdict.measured == pytest.approx(25.0), "one more call of a might have run"
    assert WorkConserving(tenant_slots=4).judge(run).measured == pytest.approx(50.0)


def test_the_cap_of_the_profiles_gateway_is_the_default() -> None:
    run = queueing(gap_ms=60)
    assert run.profile.gateway.pools["shared"].tenant_slots is None
    assert WorkConserving().judge(run).status is FAILED, "half of 16 slots: nobody is near it"


def test_time_in_which_the_provider_would_have_refused_does_not_count() -> None:
    # 40 tokens every 160 ms are 250/s. A limit of 250/s leaves no room to go faster; one of 400/s does.
    tight = ProviderConfig(slots=1, tokens_per_minute=15_000, bucket_s=0.16)
    assert WorkConserving(margin=0).judge(queueing(gap_ms=60, provider=tight)).status is PASSED
    loose = ProviderConfig(slots=1, tokens_per_minute=24_000, bucket_s=0.2)
    assert WorkConserving(margin=0).judge(queueing(gap_ms=60, provider=loose)).status is FAILED
    assert WorkConserving(margin=0.5).judge(queueing(gap_ms=60, provider=loose)).status is PASSED


def test_without_slots_one_waiting_request_makes_the_provider_idle() -> None:
    verdict = WorkConserving().judge(queueing(gap_ms=60, provider=ProviderConfig()))
    assert verdict.status is FAILED
    assert verdict.details["slots"] == 1


def test_a_provider_that_asked_for_a_pause_is_left_alone() -> None:
    run = queueing(gap_ms=60)
    refused = RunBuilder(run.profile)
    refused.ledger = run.ledger
    refused.call(None, 0, 0, CallEnding.THROTTLED, status=429).not_before_ns = 6_400 * MS
    assert WorkConserving().judge(run).status is PASSED


def test_the_machines_stalls_are_not_the_gateways_idleness() -> None:
    run = queueing(gap_ms=20)
    run.health.stalls = [Stall(start_ns=0, end_ns=4_000 * MS, where="provider")]
    assert WorkConserving().judge(run).status is INCONCLUSIVE, "0.3 s are left: too little waited"


# --------------------------------------------------------------------------------- overload-goodput


def overloaded(*, provider: ProviderConfig, wasted: int, refused: int = 200, served: int = 100) -> Run:
    """`served` calls of 100 ms, one after another in 10 s; the last `wasted` of them for nobody."""
    build = RunBuilder(profile(phases={"overload": 10.0}, provider=provider))
    for k in range(served):
        if k < served - wasted:
            build.answered("a", 100 * k, service_ms=100)
        else:
            record = build.ended("a", 100 * k, Outcome.ABANDONED, after_ms=20)
            build.call(record, 100 * k, 100 * k + 100, CallEnding.COMPLETED)
    for k in range(refused):
        build.refused("b", 50 * k)
    return build.run()


def test_goodput_is_useful_slot_time_over_slots() -> None:
    run = overloaded(provider=ProviderConfig(slots=1), wasted=10)
    verdict = OverloadGoodput().judge(run)
    assert (verdict.status, verdict.measured) == (PASSED, pytest.approx(10.0))
    assert verdict.details["phases"]["overload"]["offered_multiple"] == pytest.approx(3.0)
    verdict = OverloadGoodput().judge(overloaded(provider=ProviderConfig(slots=1), wasted=11))
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(11.0))
    assert "11 of 100 calls were of no use" in verdict.because


def test_an_idle_provider_loses_goodput_too_unless_only_waste_counts() -> None:
    run = overloaded(provider=ProviderConfig(slots=2), wasted=0)
    verdict = OverloadGoodput().judge(run)
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(50.0))
    assert OverloadGoodput(capacity="busy").judge(run).measured == pytest.approx(0.0)


def test_the_limit_that_is_used_more_is_the_capacity() -> None:
    # 100 × 40 tokens in 10 s: 400/s of 420/s is more than 1 of 2 slots.
    provider = ProviderConfig(slots=2, tokens_per_minute=25_200)
    verdict = OverloadGoodput().judge(overloaded(provider=provider, wasted=0))
    assert (verdict.status, verdict.details["phases"]["overload"]["unit"]) == (PASSED, "tokens")
    assert verdict.measured == pytest.approx(100 * (1 - 400 / 420))


def test_a_load_that_fits_proves_nothing() -> None:
    run = overloaded(provider=ProviderConfig(slots=1), wasted=30, refused=0)
    assert OverloadGoodput().judge(run).status is INCONCLUSIVE, "1.0 × the capacity was offered"
    assert OverloadGoodput(phases=("overload",)).judge(run).status is FAILED, "unless it was named"
    run = overloaded(provider=ProviderConfig(slots=2), wasted=30, refused=0)
    verdict = OverloadGoodput(phases=("overload",)).judge(run)
    assert verdict.status is INCONCLUSIVE
    assert "0.50 × the capacity" in verdict.because
    assert OverloadGoodput(phases=("overload",), capacity="busy").judge(run).status is FAILED


def test_closed_loops_offer_as_much_as_their_users_want_at_once() -> None:
    """Three users at a time, each waiting 200 ms for a call of 100 ms: one slot, three are wanted."""
    build = RunBuilder(profile(phases={"overload": 10.0}, provider=ProviderConfig(slots=1)))
    for k in range(100):
        build.answered("a", 100 * k, wait_ms=200, service_ms=100)
    verdict = OverloadGoodput().judge(build.run())
    assert verdict.details["phases"]["overload"]["offered_multiple"] == pytest.approx(3.0, rel=0.02)
    assert verdict.status is PASSED


def test_an_open_loop_that_is_kept_waiting_offers_no_more_for_that() -> None:
    build = RunBuilder(
        profile(phases={"overload": 10.0}, tenants={"a": 1.0}, provider=ProviderConfig(slots=1))
    )
    for k in range(50):
        build.answered("a", 200 * k, wait_ms=1_000, service_ms=100)
    run = build.run()
    tenant = run.profile.tenants[0].model_copy(update={"users": None, "arrivals": Spec(kind="uniform")})
    run.profile = run.profile.model_copy(update={"tenants": (tenant,)})
    assert OverloadGoodput().judge(run).details["phases"]["overload"]["offered_multiple"] == pytest.approx(
        0.5
    )


def test_a_provider_without_limits_has_no_capacity_to_compare_with() -> None:
    assert OverloadGoodput().judge(overloaded(provider=ProviderConfig(), wasted=0)).status is INCONCLUSIVE


# --------------------------------------------------------------------------------- capacity-leak


def probed(*, after: int, damage: int = 30, offered: bool = False) -> Run:
    """100 answers in the baseline's 10 s, `damage` failures, and `after` answers in the probe's 10 s."""
    made = profile(phases={"baseline": 10.0, "damage": 5.0, "probe": 10.0}, tenants={"a": 1.0})
    if offered:
        tenant = made.tenants[0].model_copy(update={"users": None, "arrivals": Spec(kind="uniform")})
        made = made.model_copy(update={"tenants": (tenant,)})
    build = RunBuilder(made)
    for k in range(100):
        build.answered("a", 100 * k)
    for k in range(damage):
        build.ended("a", 10_000 + 100 * k, Outcome.FAILED, after_ms=10, status=502)
    for k in range(after):
        build.answered("a", 15_000 + 10_000 * k / after)
    return build.run()


def test_a_tenth_less_passes_and_more_fails() -> None:
    assert CapacityLeak(settle_s=0).judge(probed(after=100)).measured == 0.0
    assert CapacityLeak(settle_s=0).judge(probed(after=90)).status is PASSED
    verdict = CapacityLeak(settle_s=0).judge(probed(after=80))
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(20.0))
    assert "30 failed" in verdict.because


def test_calls_in_service_count_as_well_as_answers() -> None:
    run = probed(after=100)
    for call in run.ledger[100:]:
        call.ended_ns = (call.started_ns or 0) + 25 * MS  # half as long as in the baseline
    verdict = CapacityLeak(settle_s=0).judge(run)
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(50.0))
    assert "calls in service at once" in verdict.because


def test_a_smaller_load_is_no_probe_in_an_open_loop() -> None:
    assert CapacityLeak(settle_s=0).judge(probed(after=80, offered=True)).status is INCONCLUSIVE
    assert CapacityLeak(settle_s=0).judge(probed(after=95, offered=True)).status is PASSED


def test_without_damage_nothing_can_have_leaked() -> None:
    verdict = CapacityLeak(settle_s=0).judge(probed(after=80, damage=19))
    assert verdict.status is INCONCLUSIVE
    assert "only 19 attempts" in verdict.because


# --------------------------------------------------------------------------------- concurrency-cap


def at_once(ending: CallEnding, *, early_ms: float = 0.0) -> Run:
    """30 pairs of calls; in each, the second begins `early_ms` before the first has ended."""
    build = RunBuilder(profile(tenants={"a": 1.0, "b": 1.0}))
    for k in range(30):
        first = build.ended("a", 300 * k, Outcome.ABANDONED, after_ms=80)
        build.call(first, 300 * k, 300 * k + 100, ending)
        build.answered("b", 300 * k + 100 - early_ms, service_ms=100)
    return build.run()


def test_the_cap_is_of_calls_from_arrival_to_end() -> None:
    assert ConcurrencyCap(total=1).judge(at_once(CallEnding.COMPLETED)).measured == 1
    verdict = ConcurrencyCap(total=1).judge(at_once(CallEnding.COMPLETED, early_ms=1))
    assert (verdict.status, verdict.measured, verdict.bound) == (FAILED, 2, 1)


def test_a_cancelled_call_may_take_the_grace_to_be_noticed() -> None:
    run = at_once(CallEnding.CANCELLED, early_ms=60)
    assert ConcurrencyCap(total=1).judge(run).status is PASSED
    assert ConcurrencyCap(total=1, cancel_grace_ms=50).judge(run).status is FAILED


def test_tenants_have_caps_of_their_own() -> None:
    run = at_once(CallEnding.COMPLETED, early_ms=50)
    assert ConcurrencyCap(total=2, per_tenant=1).judge(run).status is PASSED
    both = ConcurrencyCap(total=2, per_tenant=1).judge(at_once_same_tenant())
    assert (both.status, both.measured) == (FAILED, 2)
    assert "a had up to 2 calls" in both.because


def at_once_same_tenant() -> Run:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(30):
        build.answered("a", 100 * (k // 2), service_ms=50)
    return build.run()


def test_refused_calls_are_not_in_service() -> None:
    run = at_once_same_tenant()
    for call in run.ledger[1::2]:
        call.ending, call.started_ns = CallEnding.THROTTLED, None
    run.ledger += run.ledger[::2]  # enough to judge by; the same calls twice
    assert ConcurrencyCap(total=2).judge(run).measured == 2


# --------------------------------------------------------------------------------- tenant-limit


def steady(*, every_ms: float, calls: int = 40, burst: int = 1, wanted: int | None = None) -> Run:
    """`burst` calls at once every so often; the rest of what was `wanted` is refused."""
    build = RunBuilder(profile(phases={"load": every_ms * calls / burst / 1_000}, tenants={"a": 1.0}))
    for k in range(calls):
        build.answered("a", every_ms * (k // burst))
    for k in range((wanted or calls) - calls):
        build.refused("a", every_ms * k / 10)
    return build.run()


@pytest.mark.parametrize(
    ("change", "run", "status"),
    [
        ({}, steady(every_ms=500), PASSED),
        ({}, steady(every_ms=1_000, burst=2), PASSED),  # two at once, as the burst allows
        ({}, steady(every_ms=1_500, burst=3), FAILED),  # three at once
        ({"burst": 3}, steady(every_ms=1_500, burst=3), PASSED),
        ({}, steady(every_ms=400), FAILED),  # 2.5 a second: the level climbs by 0.2 each time
        ({}, steady(every_ms=1_000, wanted=80), FAILED),  # half of what it asked for and may have
        ({}, steady(every_ms=1_000), PASSED),  # it asked for no more
        ({"per_minute": None}, steady(every_ms=500), INCONCLUSIVE),
        (
            {"unit": "tokens", "per_minute": 4_800, "burst": 80},
            steady(every_ms=500),
            PASSED,
        ),  # 40 tokens each
        ({"unit": "tokens", "per_minute": 4_000, "burst": 80}, steady(every_ms=500), FAILED),
    ],
)
def test_limit_and_burst_over_every_window(change: dict[str, Any], run: Run, status: Status) -> None:
    parameters: dict[str, Any] = {"per_minute": 120, "burst": 2} | change
    assert TenantLimit(**parameters).judge(run).status is status


def test_a_tenant_that_is_admitted_nothing_is_withheld_everything() -> None:
    run = steady(every_ms=500)
    build = RunBuilder(run.profile.model_copy(update={"tenants": profile(tenants={"a": 1, "b": 1}).tenants}))
    build.records, build.ledger = run.records, run.ledger
    for k in range(30):
        build.refused("b", 500 * k, seq=1_000 + k)
    verdict = TenantLimit(per_minute=120, burst=2).judge(build.run())
    assert (verdict.status, verdict.measured) == (FAILED, 100.0)
    assert verdict.because.startswith("b was admitted 0 of the 30")


# --------------------------------------------------------------------------------- bounded-memory


def growing(values: list[float], gauge: str = "resident_bytes") -> Run:
    """A sample every 100 ms; the values are those of equal parts of 40 s."""
    build = RunBuilder(profile(phases={"churn": 40.0}))
    for k in range(400):
        value = values[k * len(values) // 400]
        build.samples.append(Sample(at_ns=k * 100 * MS, source="gateway", values={gauge: value}))
    return build.run()


@pytest.mark.parametrize(
    ("mib", "status"),
    [
        ([50, 80, 80, 80], PASSED),  # warming up
        ([80, 80, 90, 96], PASSED),  # 16 MiB
        ([80, 80, 90, 97], FAILED),
        ([80, 80, 79, 97], INCONCLUSIVE),  # a jump, not a climb
        ([400, 400, 420, 440], PASSED),  # a tenth of it
        ([400, 400, 420, 441], FAILED),
        ([80, 80, 60, 50], PASSED),
    ],
)
def test_memory_may_grow_by_a_tenth_or_by_sixteen_mebibytes(mib: list[float], status: Status) -> None:
    verdict = BoundedMemory().judge(growing([value * MIB for value in mib]))
    assert verdict.status is status


def test_any_gauge_of_the_gateway_will_do() -> None:
    check = BoundedMemory(gauge="tenants_held", slack=100)
    verdict = check.judge(growing([10, 300, 600, 900], "tenants_held"))
    assert (verdict.status, verdict.measured, verdict.bound) == (FAILED, 600, 100)
    assert BoundedMemory().judge(growing([10, 300, 600, 900], "tenants_held")).status is INCONCLUSIVE


# --------------------------------------------------------------------------------- status-codes


def answers(**change: Any) -> Run:
    """Thirty good answers and one that is changed, of 130 tokens: the profile says that 120 never fit."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(31):
        build.answered("a", 100 * k)
    build.records[-1].declared_output_tokens = 110
    for name, value in change.items():
        setattr(build.records[-1], name, value)
    return build.run()


@pytest.mark.parametrize(
    ("change", "impossible", "status"),
    [
        ({"status": 413, "outcome": Outcome.REJECTED}, 120, PASSED),
        ({"status": 503, "outcome": Outcome.REJECTED}, 120, FAILED),
        ({"status": 504, "outcome": Outcome.EXPIRED}, 120, FAILED),
        ({"status": 0, "outcome": Outcome.UNFINISHED}, 120, FAILED),
        ({"status": 0, "outcome": Outcome.ABANDONED}, 120, FAILED),
        ({}, 120, PASSED),  # it was served after all
        ({"status": 503, "outcome": Outcome.REJECTED}, 200, PASSED),
        ({"status": 503, "outcome": Outcome.REJECTED}, None, PASSED),
        ({"status": 403, "outcome": Outcome.FAILED}, None, FAILED),  # as good as the thirty others
        ({"status": 400, "outcome": Outcome.FAILED}, 120, PASSED),  # it cannot be served
        ({"status": 402, "outcome": Outcome.REJECTED}, None, PASSED),
        ({"status": 401, "outcome": Outcome.FAILED, "tenant": "b"}, None, PASSED),  # no key at all, it seems
    ],
)
def test_more_statuses_by_cause(change: dict[str, Any], impossible: int | None, status: Status) -> None:
    assert StatusCodes(impossible_tokens=impossible).judge(answers(**change)).status is status
