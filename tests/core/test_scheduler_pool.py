"""Classes that share a pool: floors, borrowing, reclaim; wide jobs among small ones; the cap per tenant."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agentload.errors import UsageError
from agentload.scheduler.admission import Dispatched, Request
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, UpstreamLimits
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies.fifo import Fifo
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.pool import ClassShare
from agentload.scheduler.tenants import TenantLane
from agentload.scheduler.work import UNIT
from scheduler_broken import NoCap
from scheduler_kit import AMPLE, MS, NS, Scene, gateway

ROOMY: dict[str, Any] = {"max_queue": AMPLE, "tenant_max_queue": AMPLE, "max_wait_s": 1e6}
ARTICLE = {
    "guaranteed": ClassConfig(nominal_share=0.50, min_units=30, **ROOMY),
    "standard": ClassConfig(nominal_share=0.35, min_units=20, **ROOMY),
    "batch": ClassConfig(nominal_share=0.15, min_units=5, **ROOMY),
}


def article(**more: Any) -> GatewayConfig:
    """The article's pool, on twenty slots that can all be taken by one tenant."""
    return gateway(classes=ARTICLE, capacity_units=100, slots=20, tenant_slots=20, **more)


def in_service(scene: Scene) -> Counter[str]:
    """Calls in flight by class."""
    return Counter(request.service_class for request in scene.running.values())


def flood(scene: Scene, service_class: str, count: int, tokens: int = 1000) -> None:
    """So many requests of one tenant of that class."""
    for _ in range(count):
        scene.submit(f"{service_class}-tenant", tokens, service_class=service_class)


def end_oldest(scene: Scene) -> Request:
    """The call that has run longest ends."""
    scene.now_ns += MS
    request = next(iter(scene.running.values()))
    scene.end(request)
    return request


def test_idle_capacity_is_lent_and_floors_are_kept_free() -> None:
    scene = Scene(article())
    flood(scene, "batch", 50)
    # Floors of 30 and 20 of 100 units keep 6 and 4 of 20 slots.
    assert in_service(scene) == {"batch": 10}
    flood(scene, "guaranteed", 50)
    assert in_service(scene) == {"batch": 10, "guaranteed": 6}
    flood(scene, "standard", 50)
    assert in_service(scene) == {"batch": 10, "guaranteed": 6, "standard": 4}


def test_what_was_lent_comes_back_as_the_borrowers_calls_end() -> None:
    scene = Scene(article())
    flood(scene, "batch", 50)
    flood(scene, "guaranteed", 50)
    flood(scene, "standard", 50)
    batch = [r for r in scene.running.values() if r.service_class == "batch"]
    for request in batch:
        scene.end(request)
    # Every call that batch had borrowed was followed by one of a class below its nominal share.
    assert in_service(scene) == {"guaranteed": 10, "standard": 7, "batch": 3}


def test_all_backlogged_the_work_is_shared_as_configured() -> None:
    scene = Scene(article())
    for name in ARTICLE:
        flood(scene, name, 600)
    for _ in range(1_000):
        end_oldest(scene)
    done = Counter(e.request.service_class for e in scene.of(Dispatched)[-900:])
    assert {name: done[name] / 900 for name in ARTICLE} == pytest.approx(
        {"guaranteed": 0.5, "standard": 0.35, "batch": 0.15}, abs=0.02
    )


def test_classes_share_the_providers_tokens_when_those_are_what_is_scarce() -> None:
    # One call a second, and it takes no time: nobody ever holds a slot, so slots cannot decide.
    upstream = UpstreamLimits(tokens_per_minute=60_000, bucket_s=1, margin=0)
    scene = Scene(article(upstream=upstream))
    for name in ARTICLE:
        flood(scene, name, 150)
    for _ in range(200):
        for request in [*scene.running.values()]:
            scene.end(request)
        scene.pass_time(NS)
    served = Counter(e.request.service_class for e in scene.of(Dispatched))
    total = sum(served.values())
    assert {name: served[name] / total for name in ARTICLE} == pytest.approx(
        {"guaranteed": 0.5, "standard": 0.35, "batch": 0.15}, abs=0.02
    )


def test_a_class_over_its_share_of_slots_yields_even_if_it_has_had_less_work() -> None:
    scene = Scene(gateway(classes=ARTICLE, capacity_units=100, slots=20, tenant_slots=20))
    flood(scene, "batch", 50, tokens=1)
    assert in_service(scene) == {"batch": 10}
    flood(scene, "guaranteed", 6, tokens=2_000)
    flood(scene, "standard", 50, tokens=2_000)
    for _ in range(4):
        scene.end(next(r for r in scene.running.values() if r.service_class == "batch"))
    assert in_service(scene) == {"batch": 7, "guaranteed": 6, "standard": 7}


class CountsClassesFromTheStart(ClassShare):
    """A class that had no work for a while is owed all the turns that it did not take."""

    def lift(self, to: float) -> None:
        pass


def turns_after_idling() -> int:
    """Of 20 turns at the provider after 200 without it, how many a class of half the pool takes."""
    classes = {name: ClassConfig(nominal_share=0.5, **ROOMY) for name in ("steady", "gone")}
    upstream = UpstreamLimits(tokens_per_minute=60_000, bucket_s=1, margin=0)
    scene = Scene(gateway(classes=classes, upstream=upstream))
    flood(scene, "steady", 400)
    for turn in range(220):
        if turn == 200:
            flood(scene, "gone", 100)
        for request in [*scene.running.values()]:
            scene.end(request)
        scene.pass_time(NS)
    return [e.request.service_class for e in scene.of(Dispatched)][-20:].count("gone")


def test_a_class_that_idled_is_owed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns_after_idling() == 10
    monkeypatch.setattr("agentload.scheduler.pool.ClassShare", CountsClassesFromTheStart)
    assert turns_after_idling() == 20


def test_a_class_that_may_not_borrow_keeps_to_its_share_and_one_not_lendable_keeps_it() -> None:
    classes = {
        "own": ClassConfig(nominal_share=0.25, borrows=False, **ROOMY),
        "kept": ClassConfig(nominal_share=0.5, lendable=False, **ROOMY),
        "rest": ClassConfig(nominal_share=0.25, **ROOMY),
    }
    scene = Scene(gateway(classes=classes, capacity_units=100, slots=20, tenant_slots=20))
    flood(scene, "own", 50)
    flood(scene, "rest", 50)
    assert in_service(scene) == {"own": 5, "rest": 5}
    flood(scene, "kept", 50)
    assert in_service(scene) == {"own": 5, "rest": 5, "kept": 10}


def test_a_job_wider_than_the_share_of_a_class_that_may_not_borrow_runs_alone() -> None:
    classes = {"own": ClassConfig(nominal_share=0.1, borrows=False), "rest": ClassConfig(nominal_share=0.9)}
    scene = Scene(gateway(classes=classes, capacity_units=100, slots=20))
    wide, second = (scene.submit("a", 30_000, service_class="own") for _ in range(2))
    assert [scene.fate(wide), scene.fate(second)] == ["dispatched", "waiting"]
    scene.end(wide)
    assert scene.fate(second) == "dispatched"


def test_floors_that_do_not_fit_are_a_mistake_in_the_configuration() -> None:
    classes = {
        "a": ClassConfig(nominal_share=0.7, lendable=False),
        "b": ClassConfig(nominal_share=0.3, min_units=50),
    }
    with pytest.raises(UsageError, match=r"pool 'pool'.*lower one of them"):
        Scene(gateway(classes=classes, capacity_units=100))


def test_a_flooded_pool_does_not_touch_another_one() -> None:
    def pool(name: str) -> PoolConfig:
        return PoolConfig(slots=4, tenant_slots=4, classes={name: ClassConfig(**ROOMY)})

    upstream = UpstreamLimits(tokens_per_minute=60_000, bucket_s=1, margin=0)
    config = GatewayConfig(
        pools={"shared": pool("shared"), "own": pool("own")}, tenants={}, upstream=upstream
    )
    scene = Scene(config)
    flood(scene, "shared", 100)
    flood(scene, "own", 100)
    for _ in range(100):
        for request in [*scene.running.values()]:
            scene.end(request)
        scene.pass_time(NS)
    served = Counter(e.request.service_class for e in scene.of(Dispatched))
    assert served["own"] == pytest.approx(served["shared"], abs=2), "equal capacity, equal part of the tokens"


# ---------------------------------------------------------------- wide and small jobs


def small_job_waits(policy: type[FairQueue], gather_after_s: float) -> tuple[int, int]:
    """Picks until a job of 8 of 10 units starts among small ones, and picks of small ones meanwhile."""
    scene = Scene(
        gateway(slots=20, tenant_slots=20, capacity_units=10, gather_after_s=gather_after_s), policy=policy
    )
    for _ in range(20):
        scene.submit("small", 1000)
    wide = scene.submit("wide", 8_000)
    before, ends = len(scene.dispatched), 0
    while scene.fate(wide) == "waiting" and ends < 1_500:
        end_oldest(scene)
        scene.submit("small", 1000)
        ends += 1
    return ends, scene.dispatched[before:].count("small")


def test_a_wide_job_is_passed_for_a_while_and_then_gathers_units() -> None:
    # A call ends every millisecond: it is passed for 50 ms, and then needs eight calls to end.
    ends, passed = small_job_waits(StartTimeFairQueue, gather_after_s=0.05)
    assert ends == pytest.approx(51 + 8, abs=3)
    assert passed == pytest.approx(51, abs=3)


def test_without_gathering_small_jobs_always_slip_past_a_wide_one() -> None:
    assert small_job_waits(StartTimeFairQueue, gather_after_s=1e6)[0] == 1_500


def test_without_passing_units_stand_idle_at_once() -> None:
    ends, passed = small_job_waits(Fifo, gather_after_s=0.05)
    assert (ends, passed) == (18, 10), "first the small ones before it, then nobody until it fits"


def test_small_jobs_go_on_once_the_wide_one_is_in() -> None:
    scene = Scene(gateway(slots=20, tenant_slots=20, capacity_units=10, gather_after_s=0))
    for _ in range(14):
        scene.submit("small", 1000)
    wide = scene.submit("wide", 8_000)
    while scene.fate(wide) == "waiting":
        end_oldest(scene)
    assert scene.snapshot.pools["pool"].reserved_units == 10.0, "two small ones beside it"


def test_while_one_class_gathers_another_still_gets_its_floor() -> None:
    classes = {
        "wide": ClassConfig(nominal_share=0.5, **ROOMY),
        "kept": ClassConfig(nominal_share=0.5, min_units=2, **ROOMY),
    }
    scene = Scene(gateway(classes=classes, slots=20, tenant_slots=20, capacity_units=10, gather_after_s=0))
    flood(scene, "wide", 8)
    wide = scene.submit("gatherer", 8_000, service_class="wide")
    flood(scene, "kept", 4)
    assert in_service(scene)["kept"] == 2
    assert scene.fate(wide) == "waiting"
    while in_service(scene)["wide"]:
        scene.end(next(r for r in scene.running.values() if r.service_class == "wide"))
        if scene.fate(wide) == "dispatched":
            break
    assert in_service(scene) == {"kept": 2, "wide": 1}


def test_a_gathering_job_that_leaves_holds_nobody_up() -> None:
    scene = Scene(gateway(slots=20, tenant_slots=20, capacity_units=10, gather_after_s=0))
    for _ in range(8):
        scene.submit("small", 1000)
    wide = scene.submit("wide", 8_000)
    small = scene.submit("other", 1000)
    assert [scene.fate(wide), scene.fate(small)] == ["waiting", "waiting"]
    scene.cancel(wide)
    assert scene.fate(small) == "dispatched"


def test_nobody_waits_for_a_gathering_job_whose_tenant_is_at_its_cap() -> None:
    classes = {
        "one": ClassConfig(nominal_share=0.5, **ROOMY),
        "two": ClassConfig(nominal_share=0.5, min_units=1, **ROOMY),
    }
    scene = Scene(gateway(classes=classes, slots=20, tenant_slots=2, capacity_units=10, gather_after_s=0))
    for n in range(7):
        scene.submit(f"small-{n}", 1000, service_class="one")
    wide = scene.submit("a", 5_000, service_class="one")
    held_up = scene.submit("b", 1_000, service_class="one")
    assert [scene.fate(wide), scene.fate(held_up)] == ["waiting", "waiting"]
    for _ in range(2):
        scene.submit("a", 400, service_class="two")
    assert scene.fate(held_up) == "dispatched", "the other one could not start now, if it fitted"


def crowded(**more: Any) -> Scene:
    """Twelve units, which are passed on for ever and never kept for a wide job."""
    classes = {name: ClassConfig(nominal_share=0.5, **ROOMY) for name in ("one", "two")}
    return Scene(gateway(classes=classes, slots=20, capacity_units=12, gather_after_s=1e6, **more))


def test_what_stood_behind_a_wide_job_starts_once_that_has_started() -> None:
    scene = crowded()
    hold = scene.submit("x", 5_000, service_class="one")
    scene.submit("y", 3_000, service_class="one")
    wide = scene.submit("a", 5_000, service_class="one")
    behind = scene.submit("a", 1_000, service_class="one")
    scene.submit("b", 6_000, service_class="one")
    assert scene.fate(behind) == "waiting"
    scene.end(hold)
    assert [scene.fate(wide), scene.fate(behind)] == ["dispatched", "dispatched"]


def test_what_stood_behind_a_wide_job_starts_once_that_has_left() -> None:
    scene = crowded()
    scene.submit("x", 8_000, service_class="one")
    scene.submit("b", 6_000, service_class="one")
    wide = scene.submit("a", 5_000, service_class="one")
    behind = scene.submit("a", 1_000, service_class="one")
    assert scene.fate(behind) == "waiting"
    scene.cancel(wide)
    assert scene.fate(behind) == "dispatched"


def test_what_its_tenants_cap_held_back_starts_beside_a_wide_job() -> None:
    scene = crowded(tenant_slots=1)
    first = scene.submit("a", 1_000, service_class="one")
    held_back = scene.submit("a", 1_000, service_class="one")
    scene.submit("x", 4_000, service_class="one")
    scene.submit("b", 9_000, service_class="one")
    scene.submit("c", 5_000, service_class="two")
    assert scene.fate(held_back) == "waiting"
    scene.end(first)
    assert scene.fate(held_back) == "dispatched"


def test_the_smallest_class_has_a_slot() -> None:
    classes = {"tiny": ClassConfig(nominal_share=0.1, borrows=False), "rest": ClassConfig(nominal_share=0.9)}
    scene = Scene(gateway(classes=classes, slots=4))
    fates = [scene.fate(scene.submit(name, service_class="tiny")) for name in "ab"]
    assert fates == ["dispatched", "waiting"]


# ---------------------------------------------------------------- the cap per tenant


def slots_held_by_long_calls(policy: type[FairQueue]) -> int:
    """Slots that a tenant with calls that never end holds in the end, beside one with short calls."""
    scene = Scene(gateway(slots=8), policy=policy)
    for _ in range(20):
        scene.submit("long", 1000)
        scene.submit("short", 1000)
    for _ in range(100):
        short = [r for r in scene.running.values() if r.tenant == "short"]
        if not short:
            break
        scene.now_ns += MS
        scene.end(short[0])
        scene.submit("short", 1000)
    return sum(r.tenant == "long" for r in scene.running.values())


def test_long_calls_hold_half_the_slots_at_most() -> None:
    assert slots_held_by_long_calls(StartTimeFairQueue) == 4
    assert slots_held_by_long_calls(NoCap) == 8


def test_a_capped_tenant_waits_alone() -> None:
    scene = Scene(gateway(slots=4, tenant_slots=1))
    capped = [scene.submit("capped") for _ in range(3)]
    other = scene.submit("other")
    assert [scene.fate(r) for r in capped] == ["dispatched", "waiting", "waiting"]
    assert scene.fate(other) == "dispatched"
    scene.end(capped[0])
    assert scene.fate(capped[1]) == "dispatched"


def test_the_cap_counts_a_tenants_calls_in_all_classes_of_the_pool() -> None:
    classes = {"one": ClassConfig(nominal_share=0.5), "two": ClassConfig(nominal_share=0.5)}
    scene = Scene(gateway(classes=classes, slots=8, tenant_slots=2))
    first, _ = (scene.submit("a", service_class=name) for name in classes)
    third = scene.submit("a", service_class="two")
    assert scene.fate(third) == "waiting"
    scene.end(first)
    assert scene.fate(third) == "dispatched"


class SavesUpTurns(StartTimeFairQueue):
    """A tenant at its cap keeps every turn that it could not take."""

    def resumed(self, lane: TenantLane) -> None:
        self._list(lane)


def turns_behind(policy: type[FairQueue]) -> float:
    """How many of its own jobs a tenant is owed that was due 9 of 10 and was capped at half for long."""
    scene = Scene(gateway(slots=2, weights={"capped": 9.0}), policy=policy)
    for _ in range(700):
        scene.submit("capped")
        scene.submit("other")
    for _ in range(1_000):
        end_oldest(scene)
    queue = scene.admission._classes["standard"].queue
    assert isinstance(queue, StartTimeFairQueue)
    return (queue.v - queue.lanes["capped"].tag) * 9.0 / UNIT


def test_what_a_capped_tenant_may_catch_up_is_bounded() -> None:
    # Four times the one job that it has in service, and 9 for the other's job since it came off its cap.
    assert turns_behind(StartTimeFairQueue) <= 4 + 9
    assert turns_behind(SavesUpTurns) > 1_000
