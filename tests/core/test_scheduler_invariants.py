"""What holds at every instant, whatever happens: books kept from events alone, against the scheduler's."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Dispatched, Expired, Refused
from agentload.scheduler.config import UpstreamLimits
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies import SEAM
from agentload.scheduler.policies.fifo import Fifo
from scheduler_books import (
    LIMITS,
    OPS,
    WORKING,
    Books,
    Op,
    busy_gateway,
    drain,
    random_ops,
    startable,
)
from scheduler_broken import ReleasesTooMuch, TakesHeadOrNothing
from scheduler_kit import MS, NS, Scene, gateway


@settings(max_examples=120, deadline=None)
@given(ops=OPS, policy=st.sampled_from(SEAM.names()), limited=st.booleans())
def test_books_balance_and_bounds_hold_whatever_happens(ops: list[Op], policy: str, limited: bool) -> None:
    upstream = LIMITS if limited else UpstreamLimits()
    books = Books(busy_gateway(policy, upstream=upstream, max_reservation_units=4.5))
    for op in ops:
        books.apply(op)
        books.check()
    drain(books)


@pytest.mark.parametrize("policy", SEAM.names())
@pytest.mark.parametrize("seed", [1, 2])
def test_books_balance_over_a_long_time(seed: int, policy: str) -> None:
    long_run(policy, seed)


def long_run(policy: str, seed: int) -> None:
    """A thousand things happen, and the books balance after each."""
    books = Books(busy_gateway(policy, upstream=LIMITS, max_reservation_units=4.5))
    for op in random_ops(seed, 1_000):
        books.apply(op)
        books.check()
    drain(books)


def test_the_books_notice_capacity_that_was_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentload.scheduler.dispatcher.Pool", ReleasesTooMuch)
    with pytest.raises(AssertionError):
        long_run("sfq", 1)


# ---------------------------------------------------------------- work conservation


def forget(books: Books) -> None:
    """Whatever was learnt: what a job is expected to take is what it declares."""
    estimator = books.scene.admission._estimator
    estimator._tenants.clear()
    estimator._newcomers.clear()


@settings(max_examples=80, deadline=None)
@given(ops=OPS)
def test_nothing_waits_that_every_constraint_would_let_start(ops: list[Op]) -> None:
    config = gateway(classes=WORKING, capacity_units=8, slots=4, gather_after_s=1e6)
    books = Books(config)
    for kind, which, size, _ in ops:
        if kind != "refused":
            # Kinds of their own, without deadlines: what a job is expected to take is what it declares.
            books.apply((kind, which, size, 0) if kind != "submit" else ("submit", which, size, 0))
            if kind == "submit":
                forget(books)
            assert startable(books) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_waits_in_vain_over_a_long_time(seed: int) -> None:
    books = Books(gateway(classes=WORKING, capacity_units=8, slots=6, tenant_slots=2, gather_after_s=1e6))
    for kind, which, size, _ in random_ops(seed, 1_500):
        # Mostly narrow jobs among a few wide ones.
        tokens = size if size > 3_000 else 1 + size // 4
        if kind != "refused":
            books.apply((kind, which, tokens, 0))
            forget(books)
            assert startable(books) == []


def test_the_check_of_work_conservation_can_fail() -> None:
    books = Books(
        gateway(classes=WORKING, capacity_units=8, slots=4, gather_after_s=1e6), policy=TakesHeadOrNothing
    )
    for op in (
        ("submit", 0, 4_000, 0),
        ("submit", 1, 3_000, 0),
        ("submit", 2, 2_000, 0),
        ("submit", 3, 1_000, 0),
    ):
        books.apply(op)
    assert len(startable(books)) == 1


@settings(max_examples=60, deadline=None)
@given(costs=st.lists(st.integers(1, 9_000), min_size=1, max_size=40))
def test_calls_go_out_the_moment_the_provider_has_tokens_for_them(costs: list[int]) -> None:
    upstream = UpstreamLimits(tokens_per_minute=60_000, bucket_s=10, margin=0)
    scene = Scene(gateway(slots=100, upstream=upstream))
    for cost in costs:
        scene.submit("a" if cost % 2 else "b", cost)
    scene.pass_time(400 * NS)
    assert len(scene.of(Dispatched)) == len(costs)
    # 10,000 tokens are there at once, and 1,000 more every second; each call leaves when they reach its cost.
    sent = 0
    for event in scene.of(Dispatched):
        sent += event.reservation.provider_tokens
        assert event.reservation.granted_ns == max(0, (sent - 10_000) * 1_000_000)


# ---------------------------------------------------------------- once, and only once


def test_capacity_is_released_once_however_often_the_end_is_reported() -> None:
    scene = Scene(gateway(slots=2))
    request, other = scene.submit("a"), scene.submit("b")
    for _ in range(3):
        scene.admission.complete(5, request.id, input_tokens=0, output_tokens=10, ok=True)
        scene.admission.cancel(5, request.id)
    assert scene.snapshot.pools["pool"].reserved_slots == 1
    assert scene.snapshot.counters.completed == 1
    assert scene.snapshot.counters.cancelled == 0
    assert other.id in scene.running


def test_a_request_id_in_use_is_refused_as_a_mistake_of_the_caller() -> None:
    scene = Scene(gateway())
    request = scene.submit("a")
    with pytest.raises(ValueError, match="in use"):
        scene.admission.submit(0, request)


def test_a_holder_that_falls_silent_loses_its_reservation_and_one_that_reports_keeps_it() -> None:
    scene = Scene(gateway(slots=2, lease_s=60))
    alive, silent = scene.submit("a"), scene.submit("b")
    for _ in range(6):
        scene.pass_time(15 * NS)
        scene.admission.progress(scene.now_ns, alive.id, 1)
    assert scene.fate(silent) == "lease_expired"
    assert [*scene.running] == [alive.id]
    assert scene.of(Expired)[0].request is silent
    assert scene.snapshot.counters.failed == 1


# ---------------------------------------------------------------- the same again


def event_log(seed: int, policy: type[FairQueue] | None = None) -> str:
    """A digest of everything that a random run decided."""
    books = Books(busy_gateway(upstream=LIMITS), seed=seed, policy=policy)
    for op in random_ops(seed, 600):
        books.apply(op)
    assert len(books.scene.events) > 100
    kinds = {Dispatched, Refused, Expired}
    assert {type(event) for event in books.scene.events} == kinds
    return hashlib.sha256(repr(books.scene.events).encode()).hexdigest()


def logs_of_two_processes(policy: str) -> list[str]:
    """The log of seed 5 under two hash seeds; `policy` is an expression."""
    here = Path(__file__).resolve()
    code = (
        f"import sys; sys.path[:0] = [{str(here.parent.parent)!r}, {str(here.parent)!r}]\n"
        "import scheduler_broken, test_scheduler_invariants as t\n"
        f"print(t.event_log(5, {policy}))"
    )
    return [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]


def test_the_same_inputs_lead_to_the_same_decisions_under_any_hash_seed() -> None:
    assert logs_of_two_processes("None") == [event_log(5)] * 2
    assert event_log(6) != event_log(5)


def test_a_policy_that_iterates_over_a_set_would_be_found_out() -> None:
    one, other = logs_of_two_processes("scheduler_broken.PicksFromASet")
    assert one != other


# ---------------------------------------------------------------- memory


def test_tenants_that_come_once_leave_nothing_behind() -> None:
    scene = Scene(gateway(slots=4, max_tenants=500))
    scene.submit("regular", 100)
    largest = 0
    for n in range(5_000):
        scene.submit(f"once-{n}", 100 + n % 900)
        if len(scene.running) == 4:
            scene.now_ns += MS
            scene.end(next(iter(scene.running.values())))
        queue = scene.admission._classes["standard"].queue
        largest = max(largest, len(queue.lanes))
    assert largest < 100, "those in service, those waiting, and those whose debt time has not passed yet"
    assert len(scene.admission._estimator) <= 500
    assert len(scene.admission._tickets) <= 8
    assert not scene.refusals


def test_more_busy_tenants_than_state_is_kept_for_are_refused() -> None:
    scene = Scene(gateway(slots=1, max_tenants=10))
    fates = [scene.fate(scene.submit(f"t{n}")) for n in range(12)]
    assert fates == ["dispatched"] + ["waiting"] * 9 + ["too_many_tenants"] * 2


def test_cancelled_waiters_leave_no_alarms_behind() -> None:
    scene = Scene(gateway(slots=1))
    scene.submit("a")
    for _ in range(2_000):
        scene.cancel(scene.submit("a"))
    assert len(scene.admission._timers) == 0
    assert len(scene.admission._timers._heap) <= 64


def test_fifo_is_as_naive_as_it_says() -> None:
    scene = Scene(gateway(slots=4, max_queue=10), policy=Fifo)
    fates = [scene.fate(scene.submit("flood")) for _ in range(20)]
    assert fates.count("dispatched") == 4, "no cap"
    assert fates.count("waiting") == 10, "no bound but the class's"
    assert scene.fate(scene.submit("quiet")) == "class_queue_full", "the newcomer is dropped"
