"""A tenant's own limits: all of them, no more, and honest about when."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.config import ClassConfig, RetryConfig
from scheduler_kit import MS, NS, Scene, gateway

PLAIN = RetryConfig(jitter="none")


def limited(**limits: Any) -> Scene:
    """A tenant `a` with limits, and capacity for everything."""
    ample = {"slots": 1_000, "tenant_slots": 1_000, "retry": PLAIN}
    return Scene(gateway(**ample, tenants={"a": limits}))


def test_over_its_limit_a_tenant_is_refused_and_nobody_else() -> None:
    scene = limited(requests_per_minute=60, burst_s=3)
    fates = [scene.fate(scene.submit("a")) for _ in range(5)]
    assert fates == ["dispatched"] * 3 + ["tenant_over_limit"] * 2
    assert scene.fate(scene.submit("b")) == "dispatched"
    assert [refusal.reason.status for refusal in scene.refusals] == [429, 429]


def test_the_kth_refused_is_told_when_the_kth_may_come_and_may() -> None:
    scene = limited(requests_per_minute=30, burst_s=2)
    scene.submit("a")
    refused = [scene.submit("a") for _ in range(5)]
    assert [refusal.retry_after_s for refusal in scene.refusals] == [2, 4, 6, 8, 10]
    for request, told in zip(refused, [2, 4, 6, 8, 10], strict=True):
        scene.now_ns = told * NS
        assert scene.fate(scene.submit("a", attempt=1)) == "dispatched", request.id


def test_tokens_are_those_that_the_provider_counts() -> None:
    scene = limited(tokens_per_minute=6_000, burst_s=10)
    assert scene.fate(scene.submit("a", 400, text_chars=40)) == "dispatched"
    assert scene.fate(scene.submit("a", 10, text_chars=2_400)) == "dispatched", "600 by its characters"
    assert scene.fate(scene.submit("a", 100)) == "tenant_over_limit"
    assert scene.refusals[-1].retry_after_s == 1


def test_output_beyond_what_was_declared_is_charged_as_it_comes() -> None:
    scene = limited(tokens_per_minute=6_000, burst_s=10)
    call = scene.submit("a", 0, max_output_tokens=None)
    scene.admission.progress(scene.now_ns, call.id, 1_500)
    assert scene.fate(scene.submit("a", 1)) == "tenant_over_limit"
    assert scene.refusals[-1].retry_after_s == 6, "500 tokens of debt, and one"


def test_the_later_of_both_limits_counts() -> None:
    scene = limited(requests_per_minute=60, tokens_per_minute=6_000, burst_s=1)
    scene.submit("a", 100)
    scene.submit("a", 100)
    scene.admission._door._limits["a"].overrun(0, 300)
    scene.submit("a", 100)
    assert [refusal.retry_after_s for refusal in scene.refusals] == [1, 4]


def test_a_refusal_and_one_that_never_started_use_nothing_up() -> None:
    classes = {"standard": ClassConfig(max_queue=2, tenant_max_queue=1)}
    scene = Scene(gateway(slots=1, classes=classes, tenants={"a": {"requests_per_minute": 60, "burst_s": 2}}))
    scene.submit("b")
    waiting = scene.submit("a")
    for _ in range(20):
        assert scene.fate(scene.submit("a")) == "tenant_queue_full"
    scene.cancel(waiting)
    again = [scene.submit("a"), scene.submit("a")]
    assert [scene.fate(request) for request in again] == ["waiting", "tenant_queue_full"]
    bucket = scene.admission._door._limits["a"].requests
    assert bucket is not None
    assert bucket.bucket.level(scene.now_ns) == 1


@settings(max_examples=50, deadline=None)
@given(
    gaps_ms=st.lists(st.sampled_from([0, 1, 50, 400, 3_000]), min_size=20, max_size=150),
    per_minute=st.sampled_from([60, 300, 1_200]),
    burst_s=st.sampled_from([0.5, 2.0, 10.0]),
)
def test_no_window_admits_more_than_rate_and_burst(
    gaps_ms: list[int], per_minute: int, burst_s: float
) -> None:
    scene = limited(requests_per_minute=per_minute, burst_s=burst_s)
    admitted: list[int] = []
    for gap_ms in gaps_ms:
        scene.now_ns += gap_ms * MS
        if scene.fate(scene.submit("a")) == "dispatched":
            admitted.append(scene.now_ns)
    rate_per_ns = per_minute / 60 / NS
    burst = max(1.0, per_minute / 60 * burst_s)
    for first, start_ns in enumerate(admitted):
        for last in range(first, len(admitted)):
            allowed = burst + (admitted[last] - start_ns) * rate_per_ns
            assert last - first + 1 <= allowed + 1e-6


def test_a_class_that_defers_refuses_a_chat_call_with_a_place_in_time() -> None:
    classes = {"batch": ClassConfig.model_validate({"max_queue": 1, "response_when_full": "defer"})}
    scene = Scene(gateway(slots=1, classes=classes, retry=PLAIN))
    for k in range(5):
        scene.submit(f"t{k}", service_class="batch")
    assert [refusal.reason.value for refusal in scene.refusals] == ["deferred_class_full"] * 3
    assert [refusal.reason.status for refusal in scene.refusals] == [503] * 3
    assert [refusal.retry_after_s for refusal in scene.refusals] == [1, 2, 3]
    assert scene.admission._classes["batch"].defers
