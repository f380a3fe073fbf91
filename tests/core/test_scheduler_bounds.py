"""What may wait, who loses its place, and what is refused at sight."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from agentload.errors import UsageError
from agentload.scheduler.admission import Admission, Dispatched
from agentload.scheduler.config import ClassConfig, TenantConfig, UpstreamLimits
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies import SEAM
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.reasons import Reason
from scheduler_broken import DropsNewcomers
from scheduler_kit import MS, NS, Scene, gateway


def fates(scene: Scene, tenant: str, count: int, **fields: Any) -> list[str]:
    """What became of so many requests of a tenant, once all of them were submitted."""
    requests = [scene.submit(tenant, **fields) for _ in range(count)]
    return [scene.fate(request) for request in requests]


# ---------------------------------------------------------------- bounds


def test_a_tenant_may_fill_half_of_its_class_by_default() -> None:
    scene = Scene(gateway(slots=1, max_queue=10, tenant_max_queue=None))
    assert fates(scene, "a", 7) == ["dispatched"] + ["waiting"] * 5 + ["tenant_queue_full"]
    assert fates(scene, "b", 6) == ["waiting"] * 5 + ["tenant_queue_full"]
    assert fates(scene, "c", 1) == ["waiting"], "it has less waiting than the others, who lose one"
    assert [r.reason for r in scene.refusals].count(Reason.EVICTED) == 1


def test_with_no_queue_at_all_whatever_can_start_still_starts() -> None:
    scene = Scene(gateway(slots=2, max_queue=0))
    assert fates(scene, "a", 1) + fates(scene, "b", 2) == ["dispatched"] * 2 + ["class_queue_full"]


def test_waiting_work_is_bounded_in_units() -> None:
    scene = Scene(gateway(slots=1, max_queue_units=10.0))
    assert fates(scene, "a", 3, tokens=4_000) == ["dispatched", "waiting", "tenant_queue_full"]
    assert fates(scene, "b", 1, tokens=4_000) == ["waiting"]
    assert fates(scene, "c", 1, tokens=4_000) == ["queue_units_full"], "nobody has more waiting than it"
    assert fates(scene, "d", 1, tokens=2_000) == ["waiting"], "ten units in all"


def test_waiting_bodies_are_bounded_in_bytes() -> None:
    scene = Scene(gateway(slots=1, max_queue_bytes=1_000))
    assert fates(scene, "a", 3, body_bytes=400) == ["dispatched", "waiting", "tenant_queue_full"]
    assert fates(scene, "b", 1, body_bytes=500) == ["waiting"]
    assert fates(scene, "c", 1, body_bytes=200) == ["waiting"], "the largest gave up its place"
    assert [r.request.tenant for r in scene.refusals if r.reason is Reason.EVICTED] == ["b"]
    assert fates(scene, "d", 1, body_bytes=900) == ["queue_bytes_full"]
    assert fates(scene, "d", 1, body_bytes=1_001) == ["too_wide"]


def test_nobody_is_evicted_when_that_does_not_make_enough_room() -> None:
    scene = Scene(gateway(slots=1, max_queue_bytes=1_000, weights={"light": 0.01, "rich": 100.0}))
    scene.submit("busy")
    kept = [scene.submit("light", body_bytes=100), scene.submit("rich", body_bytes=800)]
    assert fates(scene, "new", 1, body_bytes=400) == ["queue_bytes_full"]
    assert [scene.fate(request) for request in kept] == ["waiting", "waiting"]


def test_nothing_waits_longer_than_its_class_allows() -> None:
    scene = Scene(gateway(slots=1, max_wait_s=3))
    scene.submit("a")
    late = scene.submit("b")
    scene.pass_time(3 * NS - 1)
    assert scene.fate(late) == "waiting"
    scene.pass_time(1)
    assert scene.fate(late) == "max_wait"


def test_a_wait_that_would_be_too_long_is_refused_at_once() -> None:
    scene = Scene(gateway(slots=1, max_wait_s=10))
    for _ in range(3):
        first = scene.submit("a")
        scene.pass_time(4 * NS)
        scene.end(first)
    # Calls take 4 s now: two may wait for 4 and 8 s, a third would wait for 12.
    assert fates(scene, "a", 4) == ["dispatched", "waiting", "waiting", "predicted_wait"]
    refused = scene.refusals[-1]
    assert refused.predicted_wait_ns == 12 * NS
    assert refused.due_ns == scene.now_ns + 6 * NS, "two seconds too long, and then a place in four"


# ---------------------------------------------------------------- eviction


def places_lost_to_floods(policy: type[FairQueue]) -> int:
    """Refusals of a tenant that never has more than one request waiting, while two others fill the queue."""
    scene = Scene(gateway(slots=1, max_queue=10, tenant_max_queue=None), policy=policy)
    lost = 0
    for _ in range(100):
        fates(scene, "flood-1", 3)
        fates(scene, "flood-2", 3)
        quiet = scene.submit("quiet")
        while scene.fate(quiet) == "waiting":
            scene.now_ns += MS
            scene.end(next(iter(scene.running.values())))
        lost += scene.fate(quiet) != "dispatched"
    return lost


def test_floods_never_cost_a_quiet_tenant_its_place() -> None:
    assert places_lost_to_floods(StartTimeFairQueue) == 0
    assert places_lost_to_floods(DropsNewcomers) > 50


def test_the_newest_of_the_tenant_with_most_per_weight_goes() -> None:
    scene = Scene(gateway(slots=1, max_queue=6, weights={"heavy": 4.0}))
    scene.submit("busy")
    heavy = [scene.submit("heavy") for _ in range(4)]
    light = [scene.submit("light") for _ in range(2)]
    scene.submit("new")
    assert [scene.fate(r) for r in heavy] == ["waiting"] * 4
    assert [scene.fate(r) for r in light] == ["waiting", "evicted"]


def test_among_equals_the_newcomer_is_refused() -> None:
    scene = Scene(gateway(slots=1, max_queue=3))
    scene.submit("busy")
    first = [scene.submit(name) for name in "abc"]
    assert scene.fate(scene.submit("d")) == "class_queue_full"
    assert [scene.fate(r) for r in first] == ["waiting"] * 3


def test_the_heaviest_is_found_whatever_came_and_went() -> None:
    random = Random(3)
    scene = Scene(gateway(slots=1, max_queue=40, weights={"t1": 3.0, "t2": 0.5}))
    scene.submit("busy")
    queue = scene.admission._classes["standard"].queue
    for _ in range(1_500):
        before = {name: lane.load for name, lane in queue.lanes.items() if lane.waiting}
        full, evicted = len(queue.waiting) == 40, scene.snapshot.counters.evicted
        newcomer = scene.submit(f"t{int(random.random() * 8)}")
        if full and scene.snapshot.counters.evicted > evicted:
            victim = scene.events[-1].request.tenant
            assert before[victim] == max(before.values())
        elif full and scene.fate(newcomer) != "waiting":
            own = before.get(newcomer.tenant, 0.0) + 1 / queue.lanes[newcomer.tenant].weight
            assert own >= max(before.values())
        if random.random() < 0.6:
            waiting = [*queue.waiting.values()]
            scene.cancel(waiting[int(random.random() * len(waiting))].request)
    assert scene.snapshot.counters.evicted > 20


def test_a_waiter_that_leaves_makes_room_at_once() -> None:
    scene = Scene(gateway(slots=1, max_queue=1))
    scene.submit("a")
    gone = scene.submit("b")
    assert scene.fate(scene.submit("c")) == "class_queue_full"
    scene.cancel(gone)
    assert scene.fate(scene.submit("c")) == "waiting"
    scene.end(next(iter(scene.running.values())))
    assert scene.dispatched == ["a", "c"], "the one that left is never started"


# ---------------------------------------------------------------- refused at sight


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"service_class": "gold"}, Reason.UNKNOWN_CLASS),
        ({"tokens": 40_001}, Reason.TOO_WIDE),
        ({"tokens": 100, "tool_seconds": 400.0}, Reason.TOO_WIDE),
        ({"attempt": 6}, Reason.ATTEMPTS_EXHAUSTED),
        ({"attempt": 2, "max_attempts": 2}, Reason.ATTEMPTS_EXHAUSTED),
        ({"deadline_ns": 0}, Reason.EXPIRED),
    ],
)
def test_what_can_never_be_served_is_refused_for_good(fields: dict[str, Any], reason: Reason) -> None:
    scene = Scene(gateway(max_reservation_units=40))
    request = scene.submit("a", **fields)
    assert scene.fate(request) == reason
    assert scene.refusals[0].retry_after_s is None
    assert not reason.invites_retry
    assert 400 <= reason.status < 600
    assert reason.status not in (429, 503)


def test_a_call_that_the_providers_bucket_can_never_hold_is_too_wide() -> None:
    scene = Scene(gateway(upstream=UpstreamLimits(tokens_per_minute=60_000, bucket_s=10)))
    assert scene.fate(scene.submit("a", 10_001)) == "too_wide"
    assert scene.fate(scene.submit("a", 10_000)) == "dispatched", "waits for a full bucket, which it is"


def test_work_is_too_wide_by_what_it_declares_and_not_by_what_was_learnt() -> None:
    scene = Scene(gateway(max_reservation_units=2))
    for _ in range(5):
        scene.end(scene.submit("a", 100, real_tokens=5_000, workflow="liar"))
    request = scene.submit("a", 100, workflow="liar")
    assert scene.fate(request) == "dispatched"
    assert scene.reservations[request.id].reservation.units == 2.0, "all that may be reserved"


def test_a_job_wider_than_the_floors_of_others_leave_is_too_wide() -> None:
    classes = {"big": ClassConfig(nominal_share=0.5), "kept": ClassConfig(nominal_share=0.5, min_units=6)}
    scene = Scene(gateway(classes=classes, capacity_units=10, slots=10))
    assert scene.fate(scene.submit("a", 4_001, service_class="big")) == "too_wide"
    assert scene.fate(scene.submit("a", 4_000, service_class="big")) == "dispatched"


def test_while_shutting_down_newcomers_are_refused_and_what_waits_is_served() -> None:
    scene = Scene(gateway(slots=1))
    running, waiting = scene.submit("a"), scene.submit("b")
    scene.admission.drain(scene.now_ns)
    assert scene.fate(scene.submit("c")) == "shutting_down"
    assert scene.refusals[-1].retry_after_s is not None
    scene.end(running)
    assert scene.fate(waiting) == "dispatched"


def test_every_reason_has_an_answer() -> None:
    statuses = {reason: reason.status for reason in Reason}
    assert set(statuses.values()) == {400, 402, 409, 413, 429, 503, 504}
    for reason, status in statuses.items():
        assert reason.invites_retry == (status in (429, 503)), reason


def test_a_policy_is_found_by_its_name() -> None:
    assert {"fifo", "sfq"} <= set(SEAM.names())
    with pytest.raises(UsageError, match="sqf"):
        Admission(gateway(policy="sqf"), Random(1))


def test_a_tenants_weight_comes_from_its_contract() -> None:
    config = gateway(slots=1, weights={"paying": 3.0})
    assert config.tenants["paying"] == TenantConfig.model_validate({"class": "standard", "weight": 3.0})
    scene = Scene(config)
    for _ in range(9):
        scene.submit("paying")
        scene.submit("free")
    for _ in range(8):
        scene.end(next(iter(scene.running.values())))
    assert scene.dispatched[1:9].count("paying") == 6


def test_the_estimate_travels_with_the_reservation() -> None:
    scene = Scene(gateway())
    scene.submit("a", 500, input_tokens=1_500, tool_calls=2, tool_seconds=10.0, deadline_ns=3 * NS)
    [event] = scene.of(Dispatched)
    estimate = event.reservation.estimate
    assert (estimate.token_budget, estimate.deadline_ms) == (2_000, 3_000)
    coefficients = gateway().estimation
    dimensions = estimate.units_by_dimension(coefficients)
    assert dimensions == {"tokens": 2.0, "tool_calls": 0.5, "tool_seconds": 1.0}
    assert estimate.work_units(coefficients) == event.reservation.units == 3.5
