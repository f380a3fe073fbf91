"""priority-flood and isolation: the reference passes them, whole and quick; broken gateways do not."""

from __future__ import annotations

import pytest

from agentload import judge, mutants, profile
from agentload.evidence.service_classes import ClassViews, waited_ns
from agentload.evidence.statistics import percentile
from agentload.model import Profile, Run, Status
from agentload.simulate import simulate

MUTANTS = (
    "floors-ignored",
    "lent-capacity-is-kept",
    "borrows-without-limit",
    "nobody-borrows",
    "classes-ignored",
    "dedicated-pool-is-shared",
    "no-tenant-cap",
)


def loaded(name: str, *, quick: bool) -> Profile:
    whole = profile.load(profile.find(name))
    return profile.quick(whole) if quick else whole


def without(run: Run, status: Status) -> list[str]:
    return [v.check for v in judge.judge(run) if v.status is not status]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["priority-flood", "isolation"])
def test_the_reference_passes(name: str, seed: int, quick: bool) -> None:
    assert without(simulate(loaded(name, quick=quick), seed), Status.PASSED) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_its_check_notices_a_broken_gateway(name: str) -> None:
    mutant = mutants.SEAM.get(name)
    run = simulate(loaded(mutant.profile, quick=True), 1, parts=mutants.parts_of(name))
    assert mutant.killed_by in {v.check for v in judge.judge(run) if v.status is Status.FAILED}


def with_headroom(headroom: float) -> tuple[float, float]:
    """p95 of the waits of a class that uses less than its share (no floor), and slots in use, of 16."""
    pool = "gateway.pools.shared"
    chosen = profile.load(
        profile.find("priority-flood"),
        (
            f"{pool}.headroom={headroom}",
            f"{pool}.classes.batch.borrows=true",
            f"{pool}.classes.guaranteed.min_units=0",
        ),
    )
    views = ClassViews(simulate(chosen, 1))
    waited = waited_ns(views.of(["guaranteed"]), chosen.phase_window_ns("modest"))
    return percentile(waited, 95), views.of(views.names).mean_in_service([chosen.phase_window_ns("return")])


def test_headroom_shortens_waits_and_costs_its_share_of_the_slots() -> None:
    wait_ns, used = with_headroom(0)
    kept_wait_ns, kept_used = with_headroom(0.2)
    assert kept_wait_ns < wait_ns / 2
    assert used > 15.9
    assert kept_used == pytest.approx(13, abs=0.2)
