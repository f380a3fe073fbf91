"""The policies side by side: what each orders by, and what each lacks."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Dispatched
from agentload.scheduler.config import ClassConfig, UpstreamLimits
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies import SEAM
from agentload.scheduler.policies._ring import Ring
from agentload.scheduler.policies.drr import DeficitRoundRobin
from agentload.scheduler.policies.fifo import Fifo
from agentload.scheduler.policies.round_robin import RoundRobin
from agentload.scheduler.policies.sjf import ShortestJobFirst
from agentload.scheduler.policies.tenant_cap import TenantCap
from agentload.scheduler.tenants import TenantLane, Ticket
from scheduler_kit import AMPLE, MS, NS, Scene, gateway, serve_backlogged
from scheduler_scenes import (
    WEIGHTS,
    constant,
    gaps,
    pareto,
    picks_after_refund,
    picks_until_ten_services,
    picks_while_in_debt,
    share_after_idling,
    shares,
    underestimators_share,
)

ROOMY: dict[str, Any] = {"max_queue": AMPLE, "tenant_max_queue": AMPLE, "max_wait_s": 1e6}


def end_oldest(scene: Scene) -> None:
    """The call that has run longest ends."""
    scene.now_ns += MS
    scene.end(next(iter(scene.running.values())))


def served(scene: Scene) -> list[str]:
    """Let all end, one after another; the tenants in the order of their dispatches."""
    while scene.running:
        end_oldest(scene)
    return scene.dispatched


# ---------------------------------------------------------------- shares


@pytest.mark.parametrize("policy", ["fifo", "tenant-cap", "round-robin", "sjf", "none", "priority"])
def test_the_others_do_not_know_weights(policy: str) -> None:
    assert shares(SEAM.get(policy), constant) == pytest.approx(dict.fromkeys("abc", 1 / 3), abs=0.02)


def test_turns_are_not_work() -> None:
    def dear_ones_share(policy: type[FairQueue]) -> float:
        scene = Scene(gateway(slots=4, tenant_slots=4), policy=policy)
        serve_backlogged(scene, ["a", "b"], 2_000, lambda t: 10_000 if t == "b" else 1_000, depth=10)
        return scene.work["b"] / sum(scene.work.values())

    assert dear_ones_share(RoundRobin) == pytest.approx(10 / 11, abs=0.01)
    assert dear_ones_share(DeficitRoundRobin) == pytest.approx(0.5, abs=0.01)


# ---------------------------------------------------------------- the order of each


ARRIVALS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), max_size=30)


@settings(max_examples=50, deadline=None)
@given(arrivals=ARRIVALS, leavers=st.lists(st.integers(0, 29), max_size=5))
def test_tenant_cap_is_fifo_while_nobody_reaches_the_cap(
    arrivals: list[tuple[str, int]], leavers: list[int]
) -> None:
    def order(policy: type[FairQueue]) -> list[int]:
        scene = Scene(gateway(slots=1, tenant_slots=1), policy=policy)
        requests = [scene.submit(tenant, size) for tenant, size in arrivals]
        for place in leavers:
            if place < len(requests) and scene.fate(requests[place]) == "waiting":
                scene.cancel(requests[place])
        served(scene)
        return [event.request.id for event in scene.of(Dispatched)]

    assert order(TenantCap) == order(Fifo)


def test_tenant_cap_passes_over_a_tenant_at_its_cap_and_takes_it_up_again_where_it_stood() -> None:
    scene = Scene(gateway(slots=4, tenant_slots=2), policy=TenantCap)
    first, second, third = (scene.submit("a") for _ in range(3))
    b = scene.submit("b")
    c = [scene.submit("c") for _ in range(2)]
    assert [scene.fate(r) for r in (first, second, third, b, *c)] == [
        *["dispatched"] * 2, "waiting", "dispatched", "dispatched", "waiting"
    ]  # fmt: skip
    scene.end(b)
    assert [scene.fate(third), scene.fate(c[1])] == ["waiting", "dispatched"]
    scene.end(first)
    assert scene.fate(third) == "dispatched"


def test_tenant_cap_bounds_a_tenant_and_drops_newcomers() -> None:
    scene = Scene(gateway(slots=1, max_queue=4, tenant_max_queue=2), policy=TenantCap)
    fates = [scene.fate(scene.submit(tenant)) for tenant in "aaaabbbc"]
    assert fates == ["dispatched", "waiting", "waiting", "tenant_queue_full", "waiting", "waiting",
                     "tenant_queue_full", "class_queue_full"]  # fmt: skip


def test_round_robin_gives_every_tenant_one_turn() -> None:
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=RoundRobin)
    for tenant in "aaaabbc":
        scene.submit(tenant)
    assert served(scene) == list("aabcaba")


@settings(max_examples=50, deadline=None)
@given(arrivals=ARRIVALS)
def test_sjf_serves_in_order_of_work_and_equals_in_order_of_arrival(arrivals: list[tuple[str, int]]) -> None:
    scene = Scene(gateway(slots=1), policy=ShortestJobFirst)
    scene.submit("first", 1)
    waiting = [scene.submit(tenant, size) for tenant, size in arrivals]
    served(scene)
    started = [event.request.id for event in scene.of(Dispatched)][1:]
    assert started == [r.id for r in sorted(waiting, key=lambda r: r.max_output_tokens or 0)]


def test_sjf_starves_a_long_job_while_short_ones_come() -> None:
    scene = Scene(gateway(slots=1), policy=ShortestJobFirst)
    scene.submit("short", 10)
    long = scene.submit("long", 1000)
    for _ in range(500):
        scene.submit("short", 10)
        end_oldest(scene)
    assert scene.fate(long) == "waiting"


def test_sjf_forgets_long_jobs_that_left() -> None:
    scene = Scene(gateway(slots=1), policy=ShortestJobFirst)
    scene.submit("short", 1)
    for _ in range(1_000):
        scene.cancel(scene.submit("long", 1000))
    queue = scene.admission._classes["standard"].queue
    assert isinstance(queue, ShortestJobFirst)
    assert len(queue._heap) <= 66


def two_classes(policy: str, **low: Any) -> Scene:
    """A high and a low class of equal nominal shares, each with 200 jobs waiting."""
    classes = {
        "high": ClassConfig(nominal_share=0.5, **ROOMY),
        "low": ClassConfig(nominal_share=0.5, **ROOMY, **low),
    }
    scene = Scene(gateway(classes=classes, policy=policy, slots=4, tenant_slots=4, capacity_units=100))
    for _ in range(200):
        for name in ("low", "high"):
            scene.submit(name, service_class=name)
    for _ in range(100):
        end_oldest(scene)
    return scene


def test_priority_serves_the_first_class_alone_and_sfq_gives_each_its_share() -> None:
    assert Counter(two_classes("sfq").dispatched[-80:]) == {"high": 40, "low": 40}
    assert Counter(two_classes("priority").dispatched[-80:]) == {"high": 80}


def test_priority_takes_nothing_of_a_floor() -> None:
    # A quarter of the units, and of the slots, is kept for the low class whatever its place in the order.
    scene = two_classes("priority", min_units=25)
    assert Counter(r.service_class for r in scene.running.values()) == {"high": 3, "low": 1}


# ---------------------------------------------------------------- none


def test_without_admission_everything_goes_at_once_and_is_released_once() -> None:
    config = gateway(
        slots=1,
        capacity_units=1,
        max_queue=0,
        max_reservation_units=1,
        upstream=UpstreamLimits(tokens_per_minute=60, requests_per_minute=1),
        policy="none",
    )
    scene = Scene(config)
    requests = [
        scene.submit(),
        scene.submit("b", 50_000),
        scene.submit(deadline_ns=0),
        scene.submit(attempt=9),
        scene.submit(attempt=2, max_attempts=2),
        scene.submit(body_bytes=10**9),
    ]
    assert [scene.fate(r) for r in requests] == ["dispatched"] * 6
    assert all(event.waited_ns == 0 for event in scene.of(Dispatched))
    scene.admission.provider_refused(0, requests[0].id, 60 * NS)
    assert scene.fate(scene.submit()) == "dispatched", "no pause after the provider's refusal"
    while scene.running:
        end_oldest(scene)
    assert scene.snapshot.running == 0
    assert scene.snapshot.pools["pool"].reserved_slots == 0
    assert scene.snapshot.counters.provider_refusals == 1


def test_without_admission_there_are_never_too_many_tenants() -> None:
    scene = Scene(gateway(policy="none", max_tenants=2))
    assert {scene.fate(scene.submit(f"t{n}")) for n in range(5)} == {"dispatched"}


def test_without_admission_a_gateway_still_shuts_down() -> None:
    scene = Scene(gateway(policy="none"))
    scene.admission.drain(0)
    assert scene.fate(scene.submit()) == "shutting_down"
    assert scene.fate(scene.submit(service_class="gold")) == "unknown_class"


# ---------------------------------------------------------------- drr: what deficits must do


class EarnsWhileIdle(DeficitRoundRobin):
    """A lane keeps its place in the ring, and its credit, whether it has anything waiting or not."""

    def _keep_or_drop(self, lane: TenantLane) -> None:
        Ring.joined(self, lane)

    def _paid_up(self, lane: TenantLane) -> None:
        self._ring.move_to_end(lane.tenant)

    def may_forget(self, lane: TenantLane) -> bool:
        return False


class ClearsDebt(DeficitRoundRobin):
    """The textbook's reset: a lane that empties starts from zero, in debt or not."""

    def _keep_or_drop(self, lane: TenantLane) -> None:
        self._drop(lane)


class RefundsAll(DeficitRoundRobin):
    """A refund is credit, whenever it comes."""

    def charge(self, ticket: Ticket, work: int) -> None:
        tenant = ticket.lane.tenant
        self.credit[tenant] = self.credit.get(tenant, 0.0) - work


class SmallQuantum(DeficitRoundRobin):
    """A quantum that is much smaller than a job."""

    def _largest(self) -> float:
        return 1_000.0


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.floats(0.1, 20), min_size=2, max_size=5),
    slots=st.integers(1, 8),
    widest=st.integers(1, 20_000),
    seed=st.integers(0, 2**16),
)
def test_drr_keeps_its_bound(weights: list[float], slots: int, widest: int, seed: int) -> None:
    found = gaps(DeficitRoundRobin, weights, slots, widest, seed)
    assert all(gap.reach <= gap.quantum + gap.dearest + 1e-6 for gap in found)


def test_the_bound_of_drr_is_one_that_can_be_broken() -> None:
    [gap] = gaps(RoundRobin, [10.0, 1.0], 2, 1000, 3)
    assert gap.reach > gap.quantum + gap.dearest


def test_drr_banks_no_credit_while_idle() -> None:
    assert share_after_idling(DeficitRoundRobin) == pytest.approx(0.5, abs=0.01)
    assert share_after_idling(EarnsWhileIdle) == 1.0


def test_drr_loses_credit_and_keeps_debt_when_a_lane_empties() -> None:
    assert picks_while_in_debt(DeficitRoundRobin) == pytest.approx(9 * 99, abs=20)
    assert picks_while_in_debt(ClearsDebt) < 150
    assert underestimators_share(DeficitRoundRobin, 1) == pytest.approx(0.5, abs=0.02)
    assert underestimators_share(ClearsDebt, 1) > 0.9


def test_drr_refunds_no_more_than_a_debt_once_a_lane_has_emptied() -> None:
    assert 240 <= picks_after_refund(DeficitRoundRobin) <= 280
    assert picks_after_refund(RefundsAll) > 450


def test_a_flood_of_new_tenants_does_not_bury_an_old_one_under_drr() -> None:
    # Newcomers join at the end of the ring: the old one has a turn in every round.
    assert picks_until_ten_services(DeficitRoundRobin, 100, 5_000) <= 100 * 11


def turns_for_each_pick(policy: type[DeficitRoundRobin]) -> float:
    """How often credit is given, for each job that starts."""
    given = 0

    class Counted(policy):  # type: ignore[valid-type, misc]
        def _earn(self, lane: TenantLane) -> None:
            nonlocal given
            given += 1
            super()._earn(lane)

    random = Random(3)
    scene = Scene(gateway(slots=4, tenant_slots=4, weights=WEIGHTS), policy=Counted)
    serve_backlogged(scene, [*WEIGHTS], 1_000, lambda _: pareto(random), depth=10)
    return given / len(scene.dispatched)


def test_a_turn_of_drr_pays_for_a_job_at_least() -> None:
    assert turns_for_each_pick(DeficitRoundRobin) <= 1
    assert turns_for_each_pick(SmallQuantum) > 10


def test_drr_forgets_idle_tenants_once_their_debt_is_paid() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2), policy=DeficitRoundRobin)
    for _ in range(3):
        scene.submit("steady", 1_000)
    for n in range(300):
        scene.submit(f"once-{n}", 100, real_tokens=3_000)
        for _ in range(6):
            end_oldest(scene)
            scene.submit("steady", 1_000)
    queue = scene.admission._classes["standard"].queue
    assert isinstance(queue, DeficitRoundRobin)
    assert len(queue.lanes) < 10
    assert len(queue.credit) < 10


def test_drr_makes_room_by_forgetting_the_least_debt() -> None:
    scene = Scene(gateway(slots=1, max_tenants=2), policy=DeficitRoundRobin)
    for tenant, tokens in (("much", 9_000), ("little", 3_000)):
        scene.end(scene.submit(tenant, 100, real_tokens=tokens))
    assert [*scene.admission._classes["standard"].queue.lanes] == ["much", "little"]
    scene.submit("new", 100)
    assert [*scene.admission._classes["standard"].queue.lanes] == ["much", "new"]
