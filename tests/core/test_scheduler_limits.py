"""The provider's limits on our side: exact buckets, no refunds, pauses, and the ramp after them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Dispatched
from agentload.scheduler.config import UpstreamLimits
from agentload.scheduler.limits import Bucket, ProviderLimits
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import provider_tokens
from scheduler_kit import NS, Scene, gateway


class ReferenceBucket:
    """A token bucket as one would write it down: a level, refilled by the time passed."""

    def __init__(self, per_minute: float, bucket_s: float) -> None:
        self.rate = per_minute / 60 / NS
        self.capacity = self.level = per_minute / 60 * bucket_s
        self.at_ns = 0

    def level_at(self, now_ns: int) -> float:
        self.level = min(self.capacity, self.level + (now_ns - self.at_ns) * self.rate)
        self.at_ns = now_ns
        return self.level


@settings(max_examples=80, deadline=None)
@given(
    per_minute=st.floats(10, 1e9),
    bucket_s=st.floats(0.5, 120),
    steps=st.lists(st.tuples(st.integers(0, 20 * NS), st.floats(0.01, 1.5)), max_size=30),
)
def test_a_bucket_grants_when_the_reference_has_the_tokens(
    per_minute: float, bucket_s: float, steps: list[tuple[int, float]]
) -> None:
    bucket, reference = Bucket(per_minute, bucket_s), ReferenceBucket(per_minute, bucket_s)
    now_ns = 0
    for passed_ns, part in steps:
        now_ns += passed_ns
        tokens = part * reference.capacity
        level = reference.level_at(now_ns)
        assert bucket.level(now_ns) == pytest.approx(level, rel=1e-6, abs=1e-6 * reference.capacity)
        lacking = min(tokens, reference.capacity) - level
        expected_ns = max(0.0, lacking / reference.rate)
        assert max(0, bucket.ready_ns(tokens) - now_ns) == pytest.approx(expected_ns, rel=1e-6, abs=1_000)
        reference.level -= tokens
        bucket.take(now_ns, tokens)


@settings(max_examples=50, deadline=None)
@given(
    cost=st.integers(100, 2_000),
    steps=st.lists(st.integers(0, 3 * NS), min_size=1, max_size=30),
)
def test_what_is_granted_never_exceeds_burst_and_rate_over_any_stretch(cost: int, steps: list[int]) -> None:
    bucket = Bucket(60_000, 2.0)
    granted: list[tuple[int, int]] = []
    now_ns = 0
    for step in steps:
        now_ns += step
        while bucket.ready_ns(cost) <= now_ns:
            bucket.take(now_ns, cost)
            granted.append((now_ns, cost))
    for first, (start_ns, _) in enumerate(granted):
        total = 0
        for at_ns, tokens in granted[first:]:
            total += tokens
            assert total <= 2_000 + 1_000 * (at_ns - start_ns) / NS + 1e-6


def test_a_call_larger_than_the_bucket_waits_for_a_full_one_and_leaves_a_debt() -> None:
    bucket = Bucket(60_000, 10)
    bucket.take(0, 4_000)
    assert bucket.ready_ns(25_000) == 4 * NS
    bucket.take(4 * NS, 25_000)
    assert bucket.level(4 * NS) == pytest.approx(-15_000)
    assert bucket.ready_ns(1_000) == 20 * NS


@pytest.mark.parametrize(
    ("chars", "max_tokens", "cost"), [(400, 50, 100), (401, None, 101), (10, 500, 500), (0, None, 0)]
)
def test_the_cost_of_a_call_is_the_providers_own_formula(
    chars: int, max_tokens: int | None, cost: int
) -> None:
    request = Scene(gateway()).submit("a", text_chars=chars, max_output_tokens=max_tokens)
    assert provider_tokens(request) == cost


def test_a_margin_is_held_back_from_rate_and_bucket() -> None:
    limits = ProviderLimits(UpstreamLimits(tokens_per_minute=60_000, bucket_s=10, margin=0.1), 16)
    assert limits.tokens is not None
    assert limits.tokens.level(0) == pytest.approx(9_000)
    assert limits.tokens.ns_per_token == pytest.approx(NS / 900)
    assert limits.largest_call == 10_000, "what the provider holds is not ours to reduce"


LIMITS = UpstreamLimits(tokens_per_minute=60_000, bucket_s=10, margin=0)


def tokens_left(scene: Scene) -> float:
    """The bucket's level now."""
    left = scene.snapshot.provider.tokens
    assert isinstance(left, float)
    return left


def test_a_short_or_failed_answer_refunds_nothing_to_the_providers_bucket() -> None:
    scene = Scene(gateway(upstream=LIMITS))
    short, failed = scene.submit("a", 2_000, real_tokens=10), scene.submit("b", 3_000)
    scene.end(short)
    scene.end(failed, ok=False)
    assert tokens_left(scene) == pytest.approx(5_000)


def test_output_beyond_what_was_charged_is_charged_while_it_comes() -> None:
    scene = Scene(gateway(upstream=LIMITS))
    request = scene.submit("a", max_output_tokens=None, text_chars=4_000, real_tokens=3_000)
    assert tokens_left(scene) == pytest.approx(9_000)
    scene.admission.progress(0, request.id, 900)
    assert tokens_left(scene) == pytest.approx(9_000)
    scene.admission.progress(0, request.id, 1_500)
    assert tokens_left(scene) == pytest.approx(8_500)
    scene.end(request)
    assert tokens_left(scene) == pytest.approx(7_000)


def test_requests_per_minute_are_a_limit_of_their_own() -> None:
    scene = Scene(gateway(upstream=UpstreamLimits(requests_per_minute=60, bucket_s=5, margin=0)))
    for _ in range(8):
        scene.submit("a" if _ % 2 else "b", 1)
    assert len(scene.dispatched) == 5
    scene.pass_time(2 * NS)
    assert len(scene.dispatched) == 7


def test_nothing_goes_out_before_the_instant_the_provider_named() -> None:
    scene = Scene(gateway(upstream=LIMITS))
    first = scene.submit("a", 1_000)
    scene.admission.provider_refused(scene.now_ns, first.id, 7 * NS)
    waiting = scene.submit("b", 1_000)
    scene.pass_time(7 * NS - 1)
    assert scene.fate(waiting) == "waiting"
    scene.pass_time(1)
    assert scene.fate(waiting) == "dispatched"
    assert scene.of(Dispatched)[1].waited_ns == 7 * NS


def test_without_a_named_instant_a_first_refusal_stops_nobody() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2))
    first, _ = scene.submit("a"), scene.submit("a")
    waiting = scene.submit("b")
    scene.admission.provider_refused(scene.now_ns, first.id, None, by_rate=False)
    scene.end(first, ok=False)
    assert scene.fate(waiting) == "dispatched"


def accept_all(scene: Scene) -> None:
    """The provider begins to answer whatever it is sent."""
    for id_ in list(scene.running):
        scene.admission.provider_accepted(id_)
    scene.poll()


def test_after_a_refusal_dispatching_ramps_up_at_the_usual_rate() -> None:
    scene = Scene(gateway(slots=100, upstream=LIMITS))
    first = scene.submit("a", 1_000)
    scene.admission.provider_refused(scene.now_ns, first.id, 5 * NS)
    for _ in range(20):
        scene.submit("b", 1_000)
    scene.pass_time(5 * NS)
    assert len(scene.dispatched) == 2, "one call's worth, although ten would have been in the bucket"
    accept_all(scene)
    scene.pass_time(1 * NS)
    assert len(scene.dispatched) == 3
    accept_all(scene)
    scene.pass_time(2 * NS)
    assert len(scene.dispatched) == 5


def test_requests_ramp_up_as_well() -> None:
    scene = Scene(gateway(upstream=UpstreamLimits(requests_per_minute=60, bucket_s=10, margin=0)))
    first = scene.submit("a")
    scene.admission.provider_refused(scene.now_ns, first.id, 5 * NS)
    for _ in range(8):
        scene.submit("b")
    scene.pass_time(5 * NS)
    assert len(scene.dispatched) == 2
    for sent in (3, 4):
        accept_all(scene)
        scene.pass_time(NS)
        assert len(scene.dispatched) == sent


def test_an_outage_says_nothing_about_the_bucket() -> None:
    scene = Scene(gateway(slots=100, upstream=LIMITS))
    first = scene.submit("a", 1_000)
    scene.admission.provider_refused(scene.now_ns, first.id, NS, by_rate=False)
    scene.pass_time(NS)
    assert tokens_left(scene) == pytest.approx(10_000)


def test_a_newcomer_that_is_refused_does_not_leave_its_wake_up_behind() -> None:
    scene = Scene(gateway(slots=9, upstream=LIMITS, weights={"first": 1000.0}))
    scene.submit("a", 9_500)
    waiting = scene.submit("a", 1_000)
    assert scene.admission.next_wakeup_ns() == NS // 2
    # It would go first and need nine seconds' worth of tokens; its deadline does not allow that.
    hasty = scene.submit("first", 9_000, deadline_ns=4 * NS)
    assert scene.fate(hasty) == "deadline_unmeetable"
    assert scene.admission.next_wakeup_ns() == NS // 2
    scene.pass_time(NS // 2)
    assert scene.fate(waiting) == "dispatched"


def test_a_pause_longer_than_it_could_wait_refuses_a_newcomer_at_once() -> None:
    scene = Scene(gateway(max_wait_s=10))
    first = scene.submit("a")
    scene.admission.provider_refused(scene.now_ns, first.id, 20 * NS)
    scene.submit("b")
    scene.submit("c", deadline_ns=5 * NS)
    assert [refused.reason for refused in scene.refusals] == [Reason.PROVIDER_UNAVAILABLE] * 2
    assert all((refused.retry_after_s or 0) >= 20 for refused in scene.refusals)
    assert Reason.PROVIDER_UNAVAILABLE.status == 503
