"""The whole core against a referee that shares no code with it; and the referee against broken cores."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.policies.drr import DeficitRoundRobin
from agentload.scheduler.policies.fifo import Fifo
from scheduler_broken import (
    BanksCredit,
    DispatchesOne,
    DropsNewcomers,
    ForgetsDebt,
    ForgivesTheCapped,
    IgnoresCost,
    JoinsAtVirtualTime,
    NeverSettles,
    NoCap,
    RefundsForgivenCharges,
    TakesHeadOrNothing,
    UnboundedTenants,
)
from scheduler_referee import Referee

WEIGHTS = {"a": 5.0, "b": 3.0, "c": 2.0, "d": 1.0}
Op = tuple[str, int, int, int]
KINDS = ("submit", "submit", "submit", "end", "end", "fail", "cancel")
OPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(1, 4_000), st.integers(0, 9)),
    max_size=80,
)


def play(referee: Referee, ops: list[Op]) -> None:
    """Whatever the operations say, one after another."""
    for kind, which, size, more in ops:
        if kind == "submit":
            referee.submit("abcd"[which % 4], size, size * more // 4)
        elif kind == "cancel":
            referee.cancel(which)
        else:
            referee.end(which, ok=kind == "end")


def random_ops(seed: int, count: int) -> list[Op]:
    """Stretches in which everybody comes, and stretches in which one tenant is gone."""
    random = Random(seed)

    def draw(n: int) -> int:
        return int(random.random() * n)

    ops: list[Op] = []
    for n in range(count):
        kind, which = KINDS[draw(len(KINDS))], draw(8)
        if kind == "submit":
            which += which % 4 == n // 60 % 5
        else:
            which = min(which, draw(8))  # the last one in the list runs long
        ops.append((kind, which, 1 + draw(4_000), draw(10)))
    return ops


@settings(max_examples=150, deadline=None)
@given(ops=OPS)
def test_every_decision_is_one_that_the_referee_allows(ops: list[Op]) -> None:
    play(Referee(WEIGHTS), ops)


@settings(max_examples=40, deadline=None)
@given(
    ops=OPS,
    slots=st.integers(1, 5),
    cap=st.integers(1, 5),
    units=st.integers(4, 12),
    max_queue=st.integers(0, 8),
    tenant_max_queue=st.integers(0, 8),
)
def test_whatever_is_configured(ops: list[Op], **config: int) -> None:
    play(Referee(WEIGHTS, **config), ops)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_over_a_long_time(seed: int) -> None:
    play(Referee(WEIGHTS), random_ops(seed, 1_500))


def play_several(core: dict[str, Any]) -> None:
    """Six long games."""
    for seed in range(6):
        play(Referee(WEIGHTS, **core), random_ops(seed, 1_500))


BROKEN: list[dict[str, Any]] = [
    {"policy": policy}
    for policy in (
        BanksCredit,
        DeficitRoundRobin,
        DropsNewcomers,
        Fifo,
        ForgetsDebt,
        ForgivesTheCapped,
        IgnoresCost,
        JoinsAtVirtualTime,
        NeverSettles,
        NoCap,
        RefundsForgivenCharges,
        TakesHeadOrNothing,
    )
]
BROKEN += [{"admission": DispatchesOne}, {"service_class": UnboundedTenants}]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: next(iter(one.values())).__name__)
def test_the_referee_objects_to_a_core_without_one_of_its_safeguards(
    broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = dict(broken)
    if service_class := broken.pop("service_class", None):
        monkeypatch.setattr("agentload.scheduler.dispatcher.ServiceClass", service_class)
    with pytest.raises(AssertionError):
        play_several(broken)
