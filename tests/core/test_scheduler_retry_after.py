"""Retry-After: whole seconds, honest, and not the same for everybody."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Dispatched, Refused
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.reasons import Reason
from agentload.scheduler.retry_after import RetryAdvice, VirtualQueue
from scheduler_kit import MS, NS, Scene, gateway


@settings(max_examples=100, deadline=None)
@given(
    due_s=st.floats(-10, 500),
    attempt=st.integers(0, 40),
    cap=st.floats(0.5, 200),
    jitter=st.sampled_from(["full", "none"]),
    spread=st.sampled_from(["tickets", "same"]),
    seed=st.integers(0, 99),
)
def test_it_is_a_whole_number_of_seconds_from_one_to_the_cap_and_never_early(
    due_s: float, attempt: int, cap: float, jitter: str, spread: str, seed: int
) -> None:
    base = min(2.0, cap)
    config = RetryConfig(base_seconds=base, max_seconds=cap, jitter=jitter, spread=spread)  # type: ignore[arg-type]
    seconds = RetryAdvice(config, Random(seed)).seconds(7, 7 + round(due_s * NS), attempt)
    assert isinstance(seconds, int)
    assert 1 <= seconds <= max(1, cap)
    if due_s * 1.2 < cap and attempt == 0:
        assert seconds >= min(due_s, int(cap))
        assert seconds <= max(1.0, due_s * 1.2 + 1), "20 % of jitter, and rounding up"


def test_callers_that_keep_coming_back_wait_exponentially_longer_up_to_the_cap() -> None:
    advice = RetryAdvice(RetryConfig(jitter="none"), Random(1))
    assert [advice.seconds(0, 0, attempt) for attempt in range(8)] == [1, 4, 8, 16, 32, 64, 120, 120]


def test_the_kth_caller_is_told_when_the_kth_place_is_free() -> None:
    queue = VirtualQueue()
    horizon_ns = 100 * NS
    assert [queue.take(NS, 2 * NS, horizon_ns) // NS for _ in range(3)] == [3, 5, 7]
    assert queue.take(20 * NS, 2 * NS, horizon_ns) // NS == 22, "places that nobody took are not owed"


def test_callers_who_never_return_do_not_push_promises_out_without_bound() -> None:
    queue = VirtualQueue()
    for _ in range(1_000):
        queue.take(0, NS, 100 * NS)
    assert queue.take(0, NS, 100 * NS) == 101 * NS


def full_gateway(retry: RetryConfig, refused: int) -> Scene:
    """Ten calls a second at most, the queue of ten full, and so many refused at one instant."""
    scene = Scene(gateway(slots=1, max_queue=10, retry=retry))
    for _ in range(5):
        call = scene.submit("warm")
        scene.pass_time(100 * MS)
        scene.end(call)
    for n in range(11 + refused):
        scene.submit(f"t{n}")
    assert [r.reason for r in scene.refusals] == [Reason.CLASS_QUEUE_FULL] * refused
    return scene


def test_refused_together_they_come_back_one_after_the_other() -> None:
    scene = full_gateway(RetryConfig(jitter="none"), 100)
    seconds = [r.retry_after_s for r in scene.refusals]
    # Ten places a second: ten callers are told 1, ten are told 2, and so on.
    assert Counter(seconds) == dict.fromkeys(range(1, 11), 10)
    assert seconds == sorted(seconds, key=lambda s: s or 0)
    exact = [(r.due_ns or 0) - scene.now_ns for r in scene.refusals]
    assert exact == [(k + 1) * 100 * MS for k in range(100)]


def test_told_the_same_they_all_come_back_at_once() -> None:
    scene = full_gateway(RetryConfig(spread="same"), 100)
    assert {r.retry_after_s for r in scene.refusals} == {1}


def test_promises_beyond_the_cap_are_spread_below_it() -> None:
    scene = full_gateway(RetryConfig(max_seconds=20), 500)
    last = Counter(r.retry_after_s for r in scene.refusals[-200:])
    assert set(last) == {16, 17, 18, 19, 20}
    assert max(last.values()) < 80


def test_jitter_only_adds() -> None:
    plain = full_gateway(RetryConfig(jitter="none"), 200).refusals
    jittered = full_gateway(RetryConfig(jitter="full"), 200).refusals
    pairs = [(p.retry_after_s or 0, j.retry_after_s or 0) for p, j in zip(plain, jittered, strict=True)]
    assert all(p <= j <= p * 1.2 + 1 for p, j in pairs)
    assert any(p < j for p, j in pairs)


def test_a_tenant_over_its_bound_is_told_when_its_own_lane_has_a_place() -> None:
    retry = RetryConfig(jitter="none")
    scene = Scene(gateway(slots=1, tenant_slots=1, max_queue=100, tenant_max_queue=4, retry=retry))
    for _ in range(5):
        call = scene.submit("warm")
        scene.pass_time(NS)
        scene.end(call)
    scene.submit("busy")
    for _ in range(4):
        scene.submit("flood")
        scene.submit("other")
    refused = [scene.submit("flood") for _ in range(3)]
    assert [scene.fate(r) for r in refused] == ["tenant_queue_full"] * 3
    # A call a second, and a third of them are the flood's: its places are free after 3, 6 and 9 s.
    assert [r.retry_after_s for r in scene.refusals] == [3, 6, 9]


def test_where_lane_and_class_are_full_the_later_place_counts() -> None:
    def promised(max_queue: int) -> int | None:
        retry = RetryConfig(jitter="none")
        scene = Scene(gateway(slots=1, max_queue=max_queue, tenant_max_queue=1, retry=retry))
        call = scene.submit("warm")
        scene.pass_time(NS)
        scene.end(call)
        for tenant in ("busy", "a", "b", "c", "d"):
            scene.submit(tenant)
        others = [scene.submit(f"t{n}").id for n in range(20)]
        scene.submit("a")
        return next(r.retry_after_s for r in scene.refusals if r.request.id > others[-1])

    assert promised(max_queue=100) == 25, "24 lanes of equal weight, and the one in service: one place each"
    assert promised(max_queue=4) == 21, "twenty places of the class are promised to others"


def test_the_latest_of_all_exhausted_constraints_counts() -> None:
    scene = full_gateway(RetryConfig(jitter="none"), 0)
    [running] = scene.running.values()
    scene.admission.provider_refused(scene.now_ns, running.id, 30 * NS)
    scene.submit("late")
    assert scene.refusals[0].retry_after_s == 31, "after the pause, and then a place: 100 ms later"


def test_the_evicted_are_told_too() -> None:
    scene = Scene(gateway(slots=1, max_queue=2))
    for tenant in ("a", "b", "b", "c"):
        scene.submit(tenant)
    [refused] = scene.refusals
    assert (refused.reason, refused.request.tenant) == (Reason.EVICTED, "b")
    assert refused.retry_after_s is not None


# ---------------------------------------------------------------- the herd


def herd(retry: RetryConfig) -> tuple[float, float]:
    """200 SDK clients at once, two retries each, that wait exactly as long as they are told.

    The gateway serves ten calls a second and lets ten wait. Returns the share that was ever served, and the
    attempts per success.
    """
    scene = Scene(gateway(slots=1, max_queue=10, tenant_max_queue=10, max_wait_s=1e6, retry=retry))
    call = scene.submit("warm")
    scene.pass_time(100 * MS)
    scene.end(call)
    agenda: list[tuple[int, int, int]] = [(scene.now_ns + n * MS, n, 0) for n in range(200)]
    heapify(agenda)
    attempts, seen = 0, len(scene.events)
    while agenda or scene.running:
        at_ns, client, attempt = agenda[0] if agenda else (1 << 62, 0, 0)
        if scene.running:
            running = next(iter(scene.running.values()))
            ends_ns = scene.reservations[running.id].reservation.granted_ns + 100 * MS
            if ends_ns <= at_ns:
                scene.pass_time(ends_ns - scene.now_ns)
                scene.end(running)
                continue
        heappop(agenda)
        scene.pass_time(max(0, at_ns - scene.now_ns))
        attempts += 1
        scene.submit(f"client-{client}", attempt=0)
        for event in scene.events[seen:]:
            if isinstance(event, Refused) and attempt < 2:
                wait_s = event.retry_after_s or 0
                heappush(agenda, (scene.now_ns + wait_s * NS, client, attempt + 1))
        seen = len(scene.events)
    served = len(scene.of(Dispatched)) - 1
    return served / 200, attempts / served


def test_clients_that_obey_to_the_second_are_all_served_by_tickets_and_hardly_any_by_one_number() -> None:
    served, attempts = herd(RetryConfig())
    assert served >= 0.95
    assert attempts <= 2.5
    served, attempts = herd(RetryConfig(spread="same"))
    assert served < 0.4
    assert attempts > 5
