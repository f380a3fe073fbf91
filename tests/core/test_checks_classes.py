"""The checks of service classes and of isolation, on runs that can be followed with a pencil."""

from __future__ import annotations

import pytest

from agentload import profile as bundled
from agentload.checks.class_borrow import ClassBorrow
from agentload.checks.class_floor import ClassFloor
from agentload.checks.class_reclaim import ClassReclaim
from agentload.checks.isolation import Isolation
from agentload.evidence.class_scene import ClassScene
from agentload.evidence.service_classes import ClassViews, class_share
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import NS, Outcome, Run, Status

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


def scene(**phases: float) -> ClassScene:
    """Sixteen slots, a high and a low class."""
    return ClassScene({"high": "high", "low": "low"}, slots=16, phases=phases)


def test_a_view_counts_what_is_in_service_and_what_is_wanted() -> None:
    built = scene(load=4.0)
    built.build.answered("high", 0, wait_ms=1_000, service_ms=500)
    built.build.answered("high", 500, wait_ms=0, service_ms=500)
    built.build.answered("low", 0, service_ms=4_000)
    views = ClassViews(built.build.run())
    high = views.of(["high"])
    assert high.in_service == [(NS // 2, 1), (3 * NS // 2, 0)]
    assert high.demand == [(0, 1), (NS // 2, 2), (NS, 1), (3 * NS // 2, 0)]
    assert high.backlog == [(0, NS)]
    assert high.mean_in_service([(0, 2 * NS)]) == 0.5
    assert views.others(["high"]).in_service == [(0, 1), (4 * NS, 0)]


# ---------------------------------------------------------------- class-floor


def floor_run(held: int, *, low: bool = True) -> Run:
    """High always has work waiting and holds so many of 16 slots for 10 s."""
    built = scene(load=10.0)
    built.backlog("high", 0, 10_000, slots=held, service_ms=500)
    for _ in range(60):
        built.build.ended("high", 0, Outcome.UNFINISHED, after_ms=10_000)
    if low:
        built.backlog("low", 0, 10_000, slots=16 - held, service_ms=500)
    return built.build.run()


@pytest.mark.parametrize(("held", "status"), [(4, PASSED), (6, PASSED), (3, FAILED), (0, FAILED)])
def test_a_class_with_work_waiting_must_hold_its_floor(held: int, status: Status) -> None:
    assert ClassFloor(service_class="high", floor=0.25).judge(floor_run(held)).status is status


def test_how_much_of_the_floor_was_missing_is_measured() -> None:
    verdict = ClassFloor(service_class="high", floor=0.25).judge(floor_run(3))
    assert verdict.measured == pytest.approx(25)
    assert "of its floor of 4 slots 25.0 % were missing" in verdict.because


def test_a_floor_that_nobody_was_after_proves_nothing() -> None:
    verdict = ClassFloor(service_class="high", floor=0.25).judge(floor_run(6, low=False))
    assert verdict.status is INCONCLUSIVE


def test_without_slots_the_check_says_what_it_needs() -> None:
    build = RunBuilder(profile(tenants={"high": 1.0}, classes={"high": "high"}))
    for verdict in (
        ClassFloor(service_class="high", floor=0.5).judge(build.run()),
        ClassBorrow(classes=("high",), phase="load", least=0.5).judge(build.run()),
        ClassReclaim(service_class="high", phase="load", share=0.5).judge(build.run()),
    ):
        assert verdict.status is INCONCLUSIVE
        assert "`slots`" in verdict.because


def test_floor_and_share_are_the_profiles_when_nobody_says_others() -> None:
    chosen = bundled.load(bundled.find("priority-flood"))
    guaranteed = class_share(chosen, "guaranteed")
    assert guaranteed is not None
    assert (guaranteed.floor_slots, guaranteed.nominal_slots) == (4, 8)
    assert class_share(chosen, "unheard-of") is None
    lacking = RunBuilder(profile(tenants={"high": 1.0}, classes={"high": "high"})).run()
    assert "say its share as `floor`" in ClassFloor(service_class="high").judge(lacking).because


# ---------------------------------------------------------------- class-borrow


@pytest.mark.parametrize(("slots", "status"), [(3, FAILED), (8, PASSED), (9, PASSED), (12, FAILED)])
def test_between_least_and_most_of_the_slots_are_borrowed(slots: int, status: Status) -> None:
    built = scene(alone=8.0)
    built.backlog("low", 0, 8_000, slots=slots, service_ms=500)
    check = ClassBorrow(classes=("low",), phase="alone", least=0.5, most=0.6)
    verdict = check.judge(built.build.run())
    used = 100 * slots / 16
    expected = (used, 60, "% used") if slots == 12 else (100 - used, 50, "% idle")
    assert verdict.status is status
    assert (verdict.measured, verdict.bound, verdict.unit) == expected


def test_several_classes_borrow_together() -> None:
    built = scene(alone=8.0)
    for name in ("high", "low"):
        built.backlog(name, 0, 8_000, slots=6, service_ms=500)
    check = ClassBorrow(classes=("low", "high"), phase="alone", least=0.7)
    assert check.judge(built.build.run()).status is PASSED


# ---------------------------------------------------------------- class-reclaim


def returned(*steps: tuple[float, int]) -> Run:
    """High returns at 4 s, wants 20 slots, and holds so many in each stretch (seconds, slots)."""
    built = scene(alone=4.0, back=10.0)
    built.backlog("low", 0, 4_000, slots=16, service_ms=500)
    at_ms = 4_000.0
    for seconds, slots in steps:
        built.backlog("high", at_ms, at_ms + 1_000 * seconds, slots=slots, service_ms=500)
        built.backlog("low", at_ms, at_ms + 1_000 * seconds, slots=16 - slots, service_ms=500)
        at_ms += 1_000 * seconds
    for _ in range(20):
        built.build.ended("high", 4_000, Outcome.UNFINISHED, after_ms=10_000)
    return built.build.run()


CHECK = ClassReclaim(service_class="high", phase="back", share=0.5, within_s=3)


@pytest.mark.parametrize(
    ("steps", "status", "measured"),
    [
        ([(1, 2), (9, 8)], PASSED, pytest.approx(0.8)),
        ([(5, 4), (5, 8)], FAILED, pytest.approx(4.7, abs=0.11)),
        ([(10, 5)], FAILED, None),
        ([(2, 8), (8, 3)], FAILED, pytest.approx(50)),
    ],
)
def test_the_share_must_come_back_in_time_and_stay(
    steps: list[tuple[float, int]], status: Status, measured: object
) -> None:
    verdict = CHECK.judge(returned(*steps))
    assert (verdict.status, verdict.measured) == (status, measured)


def test_a_class_that_wants_little_is_due_little() -> None:
    built = scene(alone=4.0, back=10.0)
    built.backlog("low", 0, 14_000, slots=14, service_ms=500)
    for k in range(100):
        built.build.answered("high", 4_000 + 100 * k, service_ms=100)
    assert CHECK.judge(built.build.run()).status is PASSED


# ---------------------------------------------------------------- isolation


def flooded(*, lost: int = 0, wait_ms: float = 1.0, saturated: bool = True) -> Run:
    """One tenant alone, then beside a flood that is refused or waits."""
    phases = {"baseline": 10.0, "noise": 10.0}
    build = RunBuilder(profile(phases=phases, tenants={"own": 1.0, "flood": 1.0}, only={"flood": ("noise",)}))
    for k in range(100):
        build.answered("own", 95 * k)
        if k < lost:
            build.refused("own", 10_000 + 95 * k)
        else:
            build.answered("own", 10_000 + 95 * k, wait_ms=wait_ms)
        build.answered("flood", 10_000 + 95 * k, wait_ms=500.0 if saturated else 0.0)
    return build.run()


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (flooded(), PASSED),
        (flooded(wait_ms=49), PASSED),
        (flooded(wait_ms=60), FAILED),
        (flooded(lost=1), PASSED),
        (flooded(lost=2), FAILED),
        (flooded(saturated=False), INCONCLUSIVE),
    ],
)
def test_victims_neither_wait_longer_nor_lose_answers(run: Run, status: Status) -> None:
    assert Isolation(victims=("own",)).judge(run).status is status
