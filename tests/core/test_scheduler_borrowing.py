"""Lending and borrowing within limits, headroom, tenants with a cap of their own, and when to scale out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.errors import UsageError
from agentload.scheduler.config import (
    ClassConfig,
    EstimationConfig,
    GatewayConfig,
    PoolConfig,
    TenantConfig,
    UpstreamLimits,
)
from agentload.scheduler.pool import ClassShare, Pool
from agentload.scheduler.work import UNIT
from scheduler_kit import AMPLE, MS, NS, Scene, gateway

ROOMY: dict[str, Any] = {"max_queue": AMPLE, "tenant_max_queue": AMPLE, "max_wait_s": 1e6}


def pool(*, headroom: float = 0.0, slots: int = 20, units: float = 1e6, **classes: ClassConfig) -> Scene:
    """One pool whose classes have a tenant each, uncapped."""
    config = PoolConfig(
        capacity_units=units, slots=slots, tenant_slots=slots, headroom=headroom, classes=classes
    )
    estimation = EstimationConfig(max_reservation_units=1e5)
    return Scene(GatewayConfig(pools={"pool": config}, estimation=estimation))


def flood(scene: Scene, service_class: str, count: int = 60, tokens: int = 1000) -> None:
    """So many requests of the class's tenant."""
    for _ in range(count):
        scene.submit(f"{service_class}-tenant", tokens, service_class=service_class)


def in_service(scene: Scene) -> Counter[str]:
    """Calls in flight by class."""
    return Counter(request.service_class for request in scene.running.values())


def one(**more: Any) -> ClassConfig:
    """A class with roomy queues."""
    return ClassConfig(**(ROOMY | more))


# ---------------------------------------------------------------- lending and borrowing


@pytest.mark.parametrize(("lendable", "kept"), [(True, 0), (1.0, 0), (0.6, 4), (0.25, 7), (False, 10)])
def test_a_class_lends_the_share_of_its_nominal_capacity_that_it_says(lendable: float, kept: int) -> None:
    scene = pool(quiet=one(nominal_share=0.5, lendable=lendable), busy=one(nominal_share=0.5))
    flood(scene, "busy")
    assert in_service(scene) == {"busy": 20 - kept}
    flood(scene, "quiet")
    assert in_service(scene)["quiet"] == kept, "what was not lent is there at once"


def test_min_units_are_not_lent_however_much_the_share_says() -> None:
    scene = pool(
        units=100, quiet=one(nominal_share=0.5, min_units=30, lendable=0.9), busy=one(nominal_share=0.5)
    )
    flood(scene, "busy")
    assert in_service(scene) == {"busy": 14}


@pytest.mark.parametrize(
    ("borrows", "most"), [(False, 5), (0.0, 5), (0.5, 7), (1.0, 10), (3.0, 20), (True, 20)]
)
def test_a_class_borrows_as_far_as_its_limit(borrows: float, most: int) -> None:
    scene = pool(quiet=one(nominal_share=0.75), busy=one(nominal_share=0.25, borrows=borrows))
    flood(scene, "busy")
    assert in_service(scene) == {"busy": most}


def test_the_limit_holds_for_units_as_for_slots() -> None:
    scene = pool(
        slots=100, units=100, quiet=one(nominal_share=0.75), busy=one(nominal_share=0.25, borrows=0.5)
    )
    flood(scene, "busy", tokens=10_000)
    assert in_service(scene) == {"busy": 3}, "30 of 37.5 units: a fourth call of 10 does not fit"


def test_lent_capacity_is_back_when_the_calls_that_borrowed_it_have_ended() -> None:
    scene = pool(owner=one(nominal_share=0.75), guest=one(nominal_share=0.25, borrows=2.0))
    flood(scene, "guest")
    assert in_service(scene) == {"guest": 15}
    flood(scene, "owner")
    assert in_service(scene) == {"guest": 15, "owner": 5}
    for request in [r for r in scene.running.values() if r.service_class == "guest"]:
        scene.end(request)
    assert in_service(scene) == {"owner": 15, "guest": 5}


def test_the_numbers_are_those_of_apf() -> None:
    """KEP-1040: MinCL = Nominal - Lendable, MaxCL = Nominal + Borrowing."""
    config = PoolConfig(
        capacity_units=200,
        slots=200,
        classes={"high": ClassConfig(nominal_share=0.4, lendable=0.5, borrows=0.25), "low": ClassConfig()},
    )
    share = Pool("pool", config).shares["high"]
    nominal = 0.4 / 1.4 * 200
    assert share.floor_units == pytest.approx(nominal * 0.5 * UNIT, abs=1)
    assert share.limit_units == pytest.approx(nominal * 1.25 * UNIT, abs=1)
    assert (share.floor_slots, share.limit_slots) == (int(nominal * 0.5), int(nominal * 1.25))


def test_shares_that_are_not_lent_and_do_not_fit_are_a_mistake() -> None:
    with pytest.raises(UsageError, match="lower one of them"):
        pool(units=100, a=one(nominal_share=0.5, lendable=0.0), b=one(nominal_share=0.5, min_units=60))


CLASSES = st.builds(
    one,
    nominal_share=st.sampled_from([0.1, 0.25, 0.4, 0.6]),
    lendable=st.sampled_from([True, False, 0.3, 0.8]),
    borrows=st.sampled_from([True, False, 0.5, 2.0]),
)
STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([200, 1000, 5000]), st.booleans()), max_size=90)


def check_limits(scene: Scene, shares: dict[str, ClassShare]) -> None:
    """Nobody above its limit (but for one job alone), and what others' floors are short of is free."""
    [one_pool] = scene.admission._dispatcher.pools
    for share in shares.values():
        if share.limit is not None and share.slots_used > 1:
            assert share.slots_used <= share.limit_slots
            assert share.units_used <= share.limit_units
        unmet = max(0, share.floor_slots - share.slots_used)
        assert one_pool.slots_free >= unmet
        assert one_pool.free_for(share) >= max(0, share.floor_units - share.units_used)


@settings(max_examples=60)
@given(classes=st.tuples(CLASSES, CLASSES, CLASSES), steps=STEPS, headroom=st.sampled_from([0.0, 0.1, 0.3]))
def test_limits_and_floors_hold_whatever_happens(
    classes: tuple[ClassConfig, ...], steps: list[tuple[int, int, bool]], headroom: float
) -> None:
    names = dict(zip("abc", classes, strict=True))
    scene = pool(slots=12, units=24, headroom=headroom, a=names["a"], b=names["b"], c=names["c"])
    shares = scene.admission._dispatcher.pools[0].shares
    for which, tokens, ends in steps:
        scene.now_ns += MS
        if ends and scene.running:
            scene.end(next(iter(scene.running.values())))
        else:
            flood(scene, "abc"[which], 1, tokens)
        check_limits(scene, shares)


def test_the_check_of_limits_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "_left_of_limit", lambda self, share: self.capacity)
    scene = pool(quiet=one(nominal_share=0.75), busy=one(nominal_share=0.25, borrows=False))
    flood(scene, "busy")
    with pytest.raises(AssertionError):
        check_limits(scene, scene.admission._dispatcher.pools[0].shares)


# ---------------------------------------------------------------- headroom


def test_headroom_is_for_those_below_their_share() -> None:
    scene = pool(headroom=0.2, owner=one(nominal_share=0.5), guest=one(nominal_share=0.5))
    flood(scene, "guest")
    assert in_service(scene) == {"guest": 16}
    flood(scene, "owner")
    assert in_service(scene) == {"guest": 16, "owner": 4}, "its burst starts at once"
    for _ in range(40):
        scene.now_ns += MS
        scene.end(next(iter(scene.running.values())))
        assert in_service(scene)["owner"] >= 4
    assert in_service(scene)["owner"] == 8
    assert 16 <= len(scene.running) <= 17, "and the headroom is free again, but for a call now and then"


def test_headroom_of_a_pool_with_one_class_stays_free_of_all_but_its_units() -> None:
    scene = pool(headroom=0.25, slots=100, units=40, only=one())
    flood(scene, "only", tokens=10_000)
    assert in_service(scene) == {"only": 3}


def test_a_wide_job_starts_in_spite_of_headroom_and_limit() -> None:
    scene = pool(
        headroom=0.2,
        units=100,
        slots=40,
        owner=one(nominal_share=0.9),
        guest=one(nominal_share=0.1, borrows=0.5),
    )
    flood(scene, "owner", 72)
    flood(scene, "guest", 10)
    wide = scene.submit("wide", 90_000, service_class="guest")
    for _ in range(1_500):
        if scene.fate(wide) != "waiting":
            break
        scene.pass_time(10 * MS)
        scene.end(next(iter(scene.running.values())))
        flood(scene, "owner", 1)
    assert scene.fate(wide) == "dispatched"


# ---------------------------------------------------------------- the article's pool


def article() -> Scene:
    """As published, with queues that never fill."""
    return pool(
        units=100,
        slots=200,
        guaranteed=one(nominal_share=0.50, min_units=30),
        standard=one(nominal_share=0.35, min_units=20),
        batch=one(nominal_share=0.15, min_units=5),
    )


def test_a_legal_job_of_forty_units_starts_in_a_class_whose_share_is_fifteen() -> None:
    """max_reservation_units is 40, batch's share 15 units and its floor 5: inside them it could never run."""
    scene = article()
    for name in ("guaranteed", "standard"):
        flood(scene, name, 200)
    wide = scene.submit("batch-tenant", 40_000, service_class="batch")
    assert scene.fate(wide) == "waiting"
    since = scene.now_ns
    while scene.fate(wide) == "waiting":
        oldest = next(iter(scene.running.values()))
        scene.pass_time(10 * MS)
        scene.end(oldest)
        flood(scene, oldest.service_class, 1)
        assert scene.now_ns - since < 3 * NS, "a second of being passed, and the longest call"
    assert scene.reservations[wide.id].reservation.units == 40


# ---------------------------------------------------------------- a tenant's own cap


def capped(**slots: int) -> Scene:
    """Eight slots, four for a tenant that does not have a cap of its own."""
    tenants = {name: TenantConfig(slots=most) for name, most in slots.items()}
    return Scene(
        GatewayConfig(pools={"pool": PoolConfig(slots=8, classes={"standard": one()})}, tenants=tenants)
    )


def held(scene: Scene) -> Counter[str]:
    """Calls in flight by tenant."""
    return Counter(request.tenant for request in scene.running.values())


def test_a_tenants_own_cap_counts_instead_of_the_pools() -> None:
    scene = capped(small=1, large=6)
    for tenant in ("small", "large", "other"):
        for _ in range(10):
            scene.submit(tenant)
    assert held(scene) == {"small": 1, "large": 6, "other": 1}
    scene.end(next(r for r in scene.running.values() if r.tenant == "small"))
    assert held(scene)["small"] == 1, "its next one starts when its last has ended"


def test_a_cap_below_the_pools_holds_where_the_pool_has_none() -> None:
    config = gateway(slots=8, tenant_slots=8)
    tenants = {"small": TenantConfig(slots=2)}
    scene = Scene(config.model_copy(update={"tenants": tenants}))
    for tenant in ("small", "other"):
        for _ in range(10):
            scene.submit(tenant)
    assert held(scene) == {"small": 2, "other": 6}


# ---------------------------------------------------------------- dedicated pools


def test_a_flood_elsewhere_changes_nothing_in_a_dedicated_pool() -> None:
    def starts(flooded: int) -> list[tuple[int, int]]:
        pools = {
            "shared": PoolConfig(slots=4, classes={"standard": one()}),
            "own": PoolConfig(slots=4, classes={"vip": one()}),
        }
        scene = Scene(GatewayConfig(pools=pools))
        for _ in range(flooded):
            scene.submit("flood", 5_000, service_class="standard")
        begun: list[tuple[int, int]] = []
        mine = []
        for _ in range(60):
            mine.append(scene.submit("vip", service_class="vip"))
            scene.pass_time(100 * MS)
            begun += [(r.id - mine[0].id, scene.now_ns) for r in scene.running.values() if r.tenant == "vip"]
            for request in [r for r in scene.running.values() if r.tenant == "vip"][:2]:
                scene.end(request)
        return begun

    assert starts(0) == starts(300)


# ---------------------------------------------------------------- when to scale out


def refused(upstream: UpstreamLimits | None = None, **tenants: int) -> Scene:
    """Two slots, one place to wait, and more callers than that."""
    classes = {"standard": ClassConfig(max_queue=1)}
    config = GatewayConfig(
        pools={"pool": PoolConfig(slots=2, classes=classes)}, upstream=upstream or UpstreamLimits()
    )
    scene = Scene(config)
    for tenant, count in (tenants or {"a": 2, "b": 2, "c": 1}).items():
        for _ in range(count):
            scene.submit(tenant)
    assert scene.refusals
    return scene


def test_scaling_out_is_advised_when_the_provider_would_take_what_the_pool_refuses() -> None:
    scene = refused(UpstreamLimits(tokens_per_minute=600_000, bucket_s=2))
    advice = scene.snapshot.pools["pool"]
    assert advice.scale_out
    assert advice.scale_out_because == (
        "class 'standard' was refused for want of slots while the provider would take more"
    )
    scene.pass_time(61 * NS)
    assert not scene.snapshot.pools["pool"].scale_out


def test_more_slots_do_not_help_where_the_providers_tokens_are_used_up() -> None:
    scene = refused(UpstreamLimits(tokens_per_minute=60_000, bucket_s=2))
    assert not scene.snapshot.pools["pool"].scale_out


def test_more_slots_do_not_help_a_tenant_that_is_at_its_own_cap() -> None:
    scene = refused(a=4)
    assert not scene.snapshot.pools["pool"].scale_out


# ---------------------------------------------------------------- wide jobs, whatever the limits


def wait_of_the_widest(scene: Scene, service_class: str) -> int:
    """Nanoseconds until the widest job that the class may have starts, while all classes want more than there
    is, in calls of one unit and 100 ms."""
    cls = scene.admission._classes[service_class]
    begun = dict.fromkeys(scene.running, scene.now_ns)
    wide = scene.submit("wide", cls.widest // 1_000, service_class=service_class)
    since = scene.now_ns
    while scene.fate(wide) == "waiting" and scene.now_ns - since < 20 * NS:
        scene.pass_time(5 * MS)
        for request in list(scene.running.values()):
            if scene.now_ns - begun.setdefault(request.id, scene.now_ns) >= 100 * MS:
                scene.end(request)
                flood(scene, request.service_class, 1)
    return scene.now_ns - since


@settings(max_examples=15, deadline=None)
@given(
    classes=st.tuples(CLASSES, CLASSES, CLASSES),
    headroom=st.sampled_from([0.0, 0.1, 0.3]),
    slots=st.sampled_from([8, 40]),
)
def test_the_widest_job_starts_within_bounds_whatever_the_limits(
    classes: tuple[ClassConfig, ...], headroom: float, slots: int
) -> None:
    a, b, c = classes
    scene = pool(slots=slots, units=24, headroom=headroom, a=a, b=b, c=c)
    for name in "abc":
        flood(scene, name, 40)
    for name in "abc":
        # A second of being passed, the calls then in service, and a turn of its class for a slot.
        assert wait_of_the_widest(scene, name) <= 2 * NS


def test_without_gathering_the_widest_job_never_starts() -> None:
    scene = pool(slots=40, units=24, a=one(nominal_share=0.5), b=one(nominal_share=0.5, borrows=0.5))
    scene.admission._dispatcher.pools[0].gather_after_ns = 10**18
    for name in "ab":
        flood(scene, name, 40)
    assert wait_of_the_widest(scene, "b") >= 20 * NS
