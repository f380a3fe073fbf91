"""What the scheduler promises, and that each promise is broken when its safeguard is removed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scheduler_properties as properties
from agentload.scheduler.policies.fifo import Fifo
from scheduler_broken import (
    BanksCredit,
    CountsRefusalsAsAdmitted,
    DispatchesOne,
    DropsOnlyTheExpired,
    ForgetsDebt,
    IgnoresCost,
    IgnoresWeights,
    JoinsAtVirtualTime,
    KeepsNoFloors,
    LosesTheExpired,
    NeverSettles,
    NoCap,
    Overcommits,
    PassingLane,
    RefundsForgivenCharges,
    ReleasesTooMuch,
    TakesHeadOrNothing,
    UnboundedClass,
    UnboundedTenants,
    WaitsForEver,
    Whim,
)
from scheduler_properties import Core, Property

PROMISES: list[tuple[Property, list[Core]]] = [
    (properties.conservation, [Core(admission=LosesTheExpired), Core(admission=CountsRefusalsAsAdmitted)]),
    (properties.capacity, [Core(pool=Overcommits), Core(pool=ReleasesTooMuch)]),
    (properties.class_floors, [Core(pool=KeepsNoFloors)]),
    (properties.tenant_caps, [Core(policy=NoCap)]),
    (
        properties.queue_bounds,
        [
            Core(service_class=UnboundedClass),
            Core(service_class=UnboundedTenants),
            Core(admission=WaitsForEver),
        ],
    ),
    (properties.work_conservation, [Core(policy=TakesHeadOrNothing), Core(admission=DispatchesOne)]),
    (
        properties.fairness_bound,
        [Core(policy=Fifo), Core(policy=IgnoresCost), Core(policy=IgnoresWeights)],
    ),
    (properties.no_credit_from_idling, [Core(policy=BanksCredit)]),
    (properties.debt_is_kept, [Core(policy=ForgetsDebt), Core(policy=NeverSettles)]),
    (properties.newcomers_bury_nobody, [Core(policy=JoinsAtVirtualTime)]),
    (properties.no_refund_of_what_was_forgiven, [Core(policy=RefundsForgivenCharges)]),
    (properties.wide_jobs_wait_bounded, [Core(admission=PassingLane)]),
    (properties.nothing_starts_too_late, [Core(admission=DropsOnlyTheExpired)]),
    (properties.same_input_same_decisions, [Core(policy=Whim)]),
]


def missing(core: Core) -> str:
    """The class in which the safeguard is missing."""
    whole = Core()
    for part in ("policy", "admission", "pool", "service_class"):
        if getattr(core, part) is not getattr(whole, part):
            return str(getattr(core, part).__name__)
    raise ValueError("nothing is missing")


BROKEN = [(promise, core) for promise, cores in PROMISES for core in cores]


@pytest.mark.parametrize("promise", [promise for promise, _ in PROMISES], ids=lambda one: one.__name__)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_reference_keeps_its_promise(promise: Property, seed: int) -> None:
    promise(Core(), Random(seed))


@pytest.mark.parametrize(("promise", "core"), BROKEN, ids=[missing(core) for _, core in BROKEN])
def test_without_its_safeguard_the_promise_is_broken(promise: Property, core: Core) -> None:
    with core.in_use(), pytest.raises(AssertionError):
        cases(promise, core)


def cases(promise: Property, core: Core) -> None:
    """Up to twenty of them."""
    for seed in range(20):
        promise(core, Random(seed))
