"""Retries: who they are, how often they came and when they may come is what was seen, not what they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.config import ClassConfig, RetryConfig
from agentload.scheduler.reasons import Reason
from agentload.scheduler.remembered import Remembered
from scheduler_kit import MS, NS, Scene, gateway

TWO = {"interactive": ClassConfig(max_queue=8), "batch": ClassConfig(max_queue=8)}


def full(**config: Any) -> Scene:
    """One slot taken, one place in the queue taken: the next ones are refused."""
    scene = Scene(gateway(slots=1, max_queue=1, **config))
    scene.submit("other")
    scene.submit("other")
    return scene


def promised(scene: Scene, request: Any) -> int:
    """The seconds that it was told."""
    told = next(event.retry_after_s for event in reversed(scene.refusals) if event.request is request)
    assert told is not None
    return int(told)


def room(scene: Scene) -> None:
    """Serve all that waits."""
    while scene.running:
        scene.end(next(iter(scene.running.values())))


@pytest.mark.parametrize("said", [0, 1, 3])
def test_an_attempt_count_cannot_be_reset_by_saying_less(said: int) -> None:
    scene = full(retry=RetryConfig(max_attempts=3))
    fates = []
    for _ in range(5):
        request = scene.submit("a", idempotency_key="k", attempt=min(said, 2))
        fates.append(scene.fate(request))
        scene.pass_time(200 * NS if fates[-1] == "class_queue_full" else NS)
        room(scene)
        scene.submit("other")
        scene.submit("other")
    assert fates[-1] == "attempts_exhausted"
    assert fates.count("class_queue_full") == max(1, 3 - said)


def test_attempts_are_those_of_one_tenant_and_one_key() -> None:
    scene = full(retry=RetryConfig(max_attempts=1))
    assert scene.fate(scene.submit("a", idempotency_key="k")) == "class_queue_full"
    scene.pass_time(200 * NS)
    for tenant, key, fate in [
        ("b", "k", "class_queue_full"),
        ("a", "j", "class_queue_full"),
        ("a", None, "class_queue_full"),
        ("a", "k", "attempts_exhausted"),
    ]:
        room(scene)
        scene.submit("other")
        scene.submit("other")
        assert scene.fate(scene.submit(tenant, idempotency_key=key)) == fate


def test_no_caller_grants_itself_more_attempts_than_configured_or_than_it_had() -> None:
    scene = Scene(gateway(retry=RetryConfig(max_attempts=4)))
    assert scene.fate(scene.submit("a", attempt=4, max_attempts=1_000)) == "attempts_exhausted"
    first = scene.submit("a", idempotency_key="k", max_attempts=2)
    scene.end(first, ok=False)
    scene.end(scene.submit("a", idempotency_key="k", max_attempts=4), ok=False)
    assert scene.fate(scene.submit("a", idempotency_key="k", max_attempts=4)) == "attempts_exhausted"


def test_once_answered_a_key_may_mean_something_else() -> None:
    scene = Scene(gateway(retry=RetryConfig(max_attempts=2)))
    for _ in range(10):
        scene.end(scene.submit("a", idempotency_key="constant"))
    assert scene.refusals == []
    assert len(scene.admission._book) == 0


def test_who_comes_too_early_is_told_what_is_left_and_nothing_else_changes() -> None:
    scene = full(retry=RetryConfig(jitter="none", base_seconds=8))
    request = scene.submit("a", idempotency_key="k")
    scene.pass_time(8 * NS)  # whatever it was told first
    again = scene.submit("a", idempotency_key="k")
    told_s = promised(scene, again)
    due_ns = scene.now_ns + told_s * NS
    room(scene)
    for wait_ms in (10, 20, 300):
        scene.pass_time(wait_ms * MS)
        if scene.now_ns >= due_ns - 50 * MS:
            break
        early = scene.submit("a", idempotency_key="k")
        assert scene.fate(early) == "too_early"
        assert promised(scene, early) == -(-(due_ns - scene.now_ns) // NS)
    scene.now_ns = due_ns
    last = scene.submit("a", idempotency_key="k")
    assert scene.fate(last) == "dispatched", "the promise stood, however often it came too early"
    assert request.attempt < again.attempt <= last.attempt == 2, "and no attempt was counted"


def test_early_callers_take_no_tickets() -> None:
    def told(early: int) -> int:
        scene = full(retry=RetryConfig(jitter="none"))
        for k in range(5):
            scene.submit("a", idempotency_key=f"k{k}")
        for _ in range(early):
            scene.submit("a", idempotency_key="k4")
        return promised(scene, scene.submit("b"))

    assert told(0) == told(50)


def test_a_caller_may_want_to_start_later() -> None:
    scene = Scene(gateway())
    later_ns = 2_500 * MS
    early = scene.submit("a", not_before_ns=later_ns)
    assert (scene.fate(early), promised(scene, early)) == ("too_early", 3)
    scene.now_ns = later_ns
    assert scene.fate(scene.submit("a", not_before_ns=later_ns)) == "dispatched"
    assert scene.fate(scene.submit("a", not_before_ns=scene.now_ns + 10**6 * NS)) == "too_early"
    assert scene.refusals[-1].retry_after_s == 120, "no promise beyond the cap"


def test_a_retry_keeps_its_class() -> None:
    scene = Scene(gateway(classes=TWO))
    scene.end(scene.submit("a", service_class="batch", idempotency_key="k"), ok=False)
    assert (
        scene.fate(scene.submit("a", service_class="interactive", idempotency_key="k")) == "identity_changed"
    )
    assert (Reason.IDENTITY_CHANGED.status, Reason.IDENTITY_CHANGED.invites_retry) == (409, False)
    assert scene.fate(scene.submit("a", service_class="batch", idempotency_key="k")) == "dispatched"


def test_a_retry_keeps_its_deadline() -> None:
    scene = Scene(gateway())
    scene.end(scene.submit("a", idempotency_key="k", deadline_ns=5 * NS), ok=False)
    scene.now_ns = 6 * NS
    for deadline_ns in (None, 60 * NS):
        assert scene.fate(scene.submit("a", idempotency_key="k", deadline_ns=deadline_ns)) == "expired"


def test_an_old_retry_neither_crosses_its_class_nor_jumps_fresh_work() -> None:
    scene = Scene(gateway(slots=1, classes=TWO, retry=RetryConfig(max_attempts=6)))
    running = scene.submit("z", service_class="interactive")
    old = scene.submit("a", service_class="batch", idempotency_key="old")
    scene.cancel(old)
    scene.pass_time(100 * NS)
    fresh = [scene.submit(f"i{k}", service_class="interactive") for k in range(3)]
    peer = scene.submit("b", service_class="batch")
    retry = scene.submit("a", service_class="batch", idempotency_key="old", attempt=5)
    assert retry.attempt == 5
    order: list[int] = []
    scene.end(running)
    while scene.running:
        call = next(iter(scene.running.values()))
        order.append(call.id)
        scene.end(call)
    assert order.index(peer.id) < order.index(retry.id), "first come, first served among equal tenants"
    assert order.index(fresh[0].id) < order.index(retry.id)
    assert {order.index(one.id) for one in (peer, retry)} != {0, 1}, "batch gets its turns and no more"


def test_who_came_as_told_is_told_the_truth_and_no_more() -> None:
    def second_promise(**fields: Any) -> int:
        scene = full(retry=RetryConfig(jitter="none", base_seconds=2))
        scene.pass_time(NS)
        room(scene)  # a second a call
        for _ in range(2):
            scene.submit("other")
        first = scene.submit("a", **fields)
        scene.now_ns += promised(scene, first) * NS
        return promised(scene, scene.submit("a", attempt=1, **fields))

    assert second_promise(idempotency_key="k") < second_promise() == 4


@settings(max_examples=200, deadline=None)
@given(
    most=st.integers(1, 40),
    puts=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=200),
)
def test_memory_is_bounded_for_all_and_for_each(most: int, puts: list[tuple[str, int]]) -> None:
    kept: Remembered[int] = Remembered(most)
    for tenant, name in puts:
        kept.put(tenant, str(name), name)
        assert kept.get(tenant, str(name)) == name
        assert len(kept) <= most
        for one in "abc":
            assert sum(key[0] == one for key in kept._values) <= max(1, most // 10)
            assert list(kept._names.get(one, [])) == [key[1] for key in kept._values if key[0] == one]
