"""Checks of the queue, of refusals and of the provider's limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.checks.bounded_queue import BoundedQueue
from agentload.checks.provider_limit import ProviderLimit
from agentload.checks.refusal_latency import RefusalLatency
from agentload.checks.retry_after_present import RetryAfterPresent
from agentload.checks.retry_after_syntax import RetryAfterSyntax, well_formed
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import CallEnding, Outcome, Run, Status
from fake_provider.config import ProviderConfig

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


# -------------------------------------------------------------------------------------------- queue


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


# ----------------------------------------------------------------------------------------- refusals


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


# ------------------------------------------------------------------------------------- the provider


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
