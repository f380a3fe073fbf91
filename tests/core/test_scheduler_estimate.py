"""Estimates: corrected by what was learnt, in bounded memory; and deadlines, which rest on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Dispatched, Expired
from agentload.scheduler.config import ClassConfig, EstimationConfig, UpstreamLimits
from agentload.scheduler.estimate import KINDS, NEWCOMERS, STALE_NS, Estimator, MovingMean
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import Request, WorkEstimate
from scheduler_kit import MS, NS, Scene, gateway


def request(declared: int | None, workflow: str = "chat", tenant: str = "a", model: str = "m") -> Request:
    """A request of a kind."""
    return Request(
        id=1,
        tenant=tenant,
        service_class="standard",
        input_tokens=10,
        text_chars=40,
        max_output_tokens=declared,
        arrived_ns=0,
        workflow=workflow,
        model=model,
    )


def learnt(*outputs: int, max_keys: int = 100, **config: float) -> Estimator:
    """An estimator that has seen these outputs of the one kind."""
    estimator = Estimator(EstimationConfig(**config), max_keys)  # type: ignore[arg-type]
    for tokens in outputs:
        estimator.served(0, request(None), tokens, NS)
    return estimator


def test_before_anything_is_learnt_what_is_declared_counts() -> None:
    assert learnt().output_tokens(request(700)) == 700
    assert learnt(default_output_tokens=300).output_tokens(request(None)) == 300


def test_a_caller_that_declares_much_is_charged_what_it_usually_needs_with_a_margin() -> None:
    assert learnt(100, 100).output_tokens(request(4096)) == 125
    assert learnt(100, 100).output_tokens(request(None)) == 125
    assert learnt(100, 100).output_tokens(request(110)) == 110, "not beyond what it may produce"


def test_a_caller_that_declares_too_little_is_charged_what_it_produces() -> None:
    assert learnt(4_000, 4_000).output_tokens(request(16)) == 4_000


@settings(max_examples=60, deadline=None)
@given(outputs=st.lists(st.integers(0, 10_000), min_size=1), declared=st.none() | st.integers(0, 20_000))
def test_an_estimate_is_never_below_what_was_learnt(outputs: list[int], declared: int | None) -> None:
    estimate = learnt(*outputs).output_tokens(request(declared))
    assert estimate >= sum(outputs) / len(outputs) - 1e-6


def test_every_kind_is_learnt_by_itself() -> None:
    estimator = learnt(4_000)
    for _ in range(3):
        for other in (request(16, workflow="w"), request(16, tenant="b"), request(16, model="n")):
            estimator.served(0, other, 16, NS)
    for other in (request(16, workflow="w"), request(16, tenant="b"), request(16, model="n")):
        assert estimator.output_tokens(other) == 16
    assert estimator.output_tokens(request(16)) == 4_000


def test_a_new_workflow_every_time_does_not_keep_a_tenant_unknown() -> None:
    estimator = learnt(default_output_tokens=32)
    for n in range(200):
        expected = estimator.output_tokens(request(None, workflow=f"w{n}"))
        assert expected == (32 if n == 0 else 500)
        estimator.served(0, request(None, workflow=f"w{n}"), 400, NS)
    assert len(estimator) <= KINDS
    assert estimator.output_tokens(request(16, workflow="new")) == 400, "never less than was learnt"
    assert estimator.output_tokens(request(900, workflow="new")) == 900, "and no discount for what is new"


def test_nobody_pushes_out_what_was_learnt_of_others() -> None:
    estimator = learnt(4_000, max_keys=50)
    for n in range(2_000):
        estimator.served(0, request(None, tenant="restless", workflow=f"w{n}"), 10, NS)
    assert estimator.output_tokens(request(16)) == 4_000
    assert len(estimator) <= 50


def test_the_window_bounds_how_long_the_past_counts() -> None:
    mean = MovingMean(window=10)
    for _ in range(1_000):
        mean.add(100)
    for _ in range(40):
        mean.add(1_000)
    assert mean.mean > 950
    assert mean.count == 10


def test_the_kinds_longest_unused_are_forgotten() -> None:
    estimator = Estimator(EstimationConfig(), max_keys=50)
    estimator.served(0, request(None, tenant="regular"), 4_000, NS)
    for n in range(500):
        estimator.served(0, request(None, tenant=f"t{n}"), 4_000, NS)
        if n % 20 == 0:
            assert estimator.output_tokens(request(16, tenant="regular")) == 4_000
            estimator.served(0, request(None, tenant="regular"), 4_000, NS)
    assert len(estimator) == 50
    assert estimator.output_tokens(request(16, tenant="t0")) == 16


def test_the_articles_numbers() -> None:
    estimate = WorkEstimate(3_000, 1_000, 4, 20.0, 30_000, "standard")
    assert estimate.token_budget == 4_000
    assert estimate.work_units(EstimationConfig()) == pytest.approx(4 + 1 + 2)


def test_a_reservation_is_what_was_learnt_and_settles_to_what_it_was() -> None:
    scene = Scene(gateway())
    for _ in range(4):
        scene.end(scene.submit("a", 4096, real_tokens=200, workflow="chat"))
    third = scene.submit("a", 4096, workflow="chat")
    assert scene.reservations[third.id].reservation.units == pytest.approx(0.25)


def shares_of_tokens(
    per_call: dict[str, dict[str, Any]], users: dict[str, int], jobs: int = 3_000
) -> list[float]:
    """What each of two tenants gets of the tokens, keeping so many requests waiting or running."""
    scene = Scene(gateway(slots=4, tenant_slots=4))
    for tenant, count in users.items():
        for _ in range(count):
            scene.submit(tenant, 100, **per_call[tenant])
    for _ in range(jobs):
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        scene.end(ended)
        scene.submit(ended.tenant, 100, **per_call[ended.tenant])
    total = sum(scene.work.values())
    return [scene.work[tenant] / total for tenant in users]


def test_silence_about_tools_buys_no_share() -> None:
    declared: dict[str, dict[str, Any]] = {"honest": {"tool_calls": 8, "tool_seconds": 20.0}, "silent": {}}
    shares = shares_of_tokens(declared, {"honest": 16, "silent": 16})
    assert shares == pytest.approx([0.5, 0.5], abs=0.01)


def test_ten_more_turns_than_declared_cost_ten_more_calls_of_share() -> None:
    """Each turn is a call: whoever wants eleven times as many gets its share, and no more."""
    kinds: dict[str, dict[str, Any]] = {"one": {"tool_calls": 1}, "eleven": {"tool_calls": 1}}
    shares = shares_of_tokens(kinds, {"one": 8, "eleven": 88})
    assert shares == pytest.approx([0.5, 0.5], abs=0.01)


def test_what_was_not_expected_is_counted() -> None:
    scene = Scene(gateway())
    for real in (50, 200):
        scene.end(scene.submit("a", 100, real_tokens=real))
    counters = scene.snapshot.counters
    assert (counters.estimated_output_tokens, counters.output_tokens) == (200, 250)
    assert counters.underestimated_output_tokens == 100


# ---------------------------------------------------------------- deadlines


def served_for(scene: Scene, seconds: float, workflow: str = "chat", times: int = 3) -> None:
    """So many calls of a kind were served, each taking so long."""
    for _ in range(times):
        call = scene.submit("a", workflow=workflow)
        scene.pass_time(round(seconds * NS))
        scene.end(call)


def test_what_cannot_end_before_its_deadline_is_refused_at_once() -> None:
    scene = Scene(gateway())
    served_for(scene, 2.0)
    late = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 2 * NS - 1)
    just = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 2 * NS)
    assert [scene.fate(late), scene.fate(just)] == ["deadline_unmeetable", "dispatched"]
    assert Reason.DEADLINE_UNMEETABLE.status == 504


def test_where_calls_differ_the_mean_is_not_time_enough() -> None:
    """1.5 and 2.5 s in turn: the mean is 2 s, and half of the calls need more."""
    scene = Scene(gateway())
    for _ in range(20):
        served_for(scene, 1.5, times=1)
        served_for(scene, 2.5, times=1)
    tight = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + round(2.4 * NS))
    roomy = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + round(3.1 * NS))
    assert [scene.fate(tight), scene.fate(roomy)] == ["deadline_unmeetable", "dispatched"]


def test_calls_that_their_deadlines_cut_off_do_not_refuse_the_next_ones_for_ever() -> None:
    """The provider hangs for long, and everybody has the same deadline."""
    scene = Scene(gateway())
    for seconds in (0.2, 0.3) * 10:
        served_for(scene, seconds, times=1)
    for _ in range(200):
        call = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + round(0.5 * NS))
        assert scene.fate(call) == "dispatched"
        scene.pass_time(round(0.48 * NS))
        scene.end(call, ok=False)


def test_the_wait_counts_towards_the_deadline() -> None:
    scene = Scene(gateway(slots=1))
    served_for(scene, 2.0)
    for _ in range(2):
        scene.submit("a", workflow="chat")
    # It would wait for both, and then take two seconds itself.
    late = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 5 * NS)
    assert scene.fate(late) == "deadline_unmeetable"
    assert scene.refusals[-1].predicted_wait_ns == 4 * NS
    just = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 6 * NS)
    assert scene.fate(just) == "waiting"


def predicted_wait_s(scene: Scene, tenant: str = "a", **fields: Any) -> float:
    """How long the scheduler thinks that one more would wait, from its refusal of an impossible deadline."""
    hasty = scene.submit(tenant, workflow="chat", deadline_ns=scene.now_ns + 2 * NS, **fields)
    assert scene.fate(hasty) == "deadline_unmeetable"
    return (scene.refusals[-1].predicted_wait_ns or 0) / NS


def test_a_predicted_wait_counts_only_the_classes_that_have_work() -> None:
    classes = {"standard": ClassConfig(nominal_share=0.5), "other": ClassConfig(nominal_share=0.5)}
    scene = Scene(gateway(classes=classes, slots=1, tenant_slots=1))
    served_for(scene, 2.0)
    for _ in range(3):
        scene.submit("a", workflow="chat")
    assert predicted_wait_s(scene) == pytest.approx(6.0), "the whole pool is lent"
    scene.submit("b", workflow="chat", service_class="other")
    assert predicted_wait_s(scene) == pytest.approx(12.0), "half of it is"


def test_a_predicted_wait_knows_what_units_allow() -> None:
    scene = Scene(gateway(slots=10, tenant_slots=10, capacity_units=2))
    served_for(scene, 2.0)
    for _ in range(6):
        scene.submit("a", 1000, workflow="chat")
    # Two run, four wait: two at a time, two seconds each.
    assert predicted_wait_s(scene) == pytest.approx(5.0)


def test_a_predicted_wait_knows_the_tenants_cap() -> None:
    scene = Scene(gateway(slots=10, tenant_slots=1))
    served_for(scene, 1.5)
    for _ in range(4):
        scene.submit("a", workflow="chat")
    assert predicted_wait_s(scene) == pytest.approx(6.0), "three wait before it, one at a time"


def test_a_predicted_wait_knows_the_providers_rate() -> None:
    upstream = UpstreamLimits(tokens_per_minute=60_000, bucket_s=1, margin=0)
    scene = Scene(gateway(upstream=upstream))
    served_for(scene, 1.0)
    for _ in range(4):
        scene.submit("a", 1000, workflow="chat")
    assert predicted_wait_s(scene) == pytest.approx(4.0), "a call a second; three wait before it"


def test_what_service_has_become_too_slow_for_is_not_started() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2))
    served_for(scene, 1.0)
    slow = [scene.submit("a", workflow="chat") for _ in range(2)]
    scene.pass_time(500 * MS)
    waiter = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 20 * NS)
    scene.pass_time(18 * NS)
    assert scene.fate(waiter) == "waiting", "a second of service, and two are left"
    scene.end(slow[0])
    assert scene.fate(waiter) == "deadline_unmeetable", "on average five seconds, as of just now"


def test_a_waiter_leaves_as_soon_as_it_can_no_longer_make_it() -> None:
    scene = Scene(gateway(slots=1))
    served_for(scene, 2.0)
    hog = scene.submit("b", workflow="chat")
    waiter = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 4 * NS)
    scene.pass_time(2 * NS)
    assert scene.fate(waiter) == "waiting"
    scene.pass_time(1)
    assert scene.fate(waiter) == "deadline_unmeetable", "two seconds are left, less a nanosecond"
    scene.end(hog)
    assert scene.dispatched[-1] == "b"


def test_a_kind_is_judged_by_its_own_time_and_a_new_one_by_its_class() -> None:
    scene = Scene(gateway())
    served_for(scene, 4.0, workflow="slow", times=5)
    served_for(scene, 0.1, workflow="fast", times=5)
    deadline_ns = scene.now_ns + NS
    fates = [
        scene.fate(scene.submit("a", workflow=name, deadline_ns=deadline_ns))
        for name in ("fast", "slow", "new")
    ]
    assert fates == ["dispatched", "deadline_unmeetable", "deadline_unmeetable"]


def test_a_slow_stretch_does_not_shut_the_door_for_ever() -> None:
    scene = Scene(gateway())
    served_for(scene, 8.0)

    def admitted() -> bool:
        call = scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 2 * NS)
        return scene.fate(call) == "dispatched"

    assert not admitted()
    scene.pass_time(STALE_NS + 1)
    assert admitted(), "nobody has confirmed the eight seconds for half a minute"


def test_a_call_that_was_cut_off_late_teaches_how_long_calls_take_and_a_quick_failure_does_not() -> None:
    scene = Scene(gateway())
    served_for(scene, 1.0)
    for _ in range(60):
        scene.end(scene.submit("a", workflow="chat"), ok=False)
    assert scene.fate(scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + NS - 1)) != "dispatched"
    for _ in range(60):
        hung = scene.submit("b", workflow="chat")
        scene.pass_time(5 * NS)
        scene.cancel(hung)
    assert scene.fate(scene.submit("b", workflow="chat", deadline_ns=scene.now_ns + 4 * NS)) != "dispatched"


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 6_000), st.sampled_from("abc")), max_size=60
    )
)
def test_nothing_starts_that_cannot_end_in_time(arrivals: list[tuple[int, int, str]]) -> None:
    """Every call takes exactly 500 ms; once that is known, whatever starts ends before its deadline."""
    scene = Scene(gateway(slots=2))
    served_for(scene, 0.5, times=1)
    for gap_ms, left_ms, tenant in arrivals:
        run(scene, gap_ms * MS)
        scene.submit(tenant, workflow="chat", deadline_ns=scene.now_ns + left_ms * MS)
    run(scene, 10 * NS)
    started = [event for event in scene.of(Dispatched) if event.request.deadline_ns is not None]
    for event in started:
        assert event.reservation.granted_ns + 500 * MS <= (event.request.deadline_ns or 0)
    for event in scene.of(Expired):
        assert event.reason in (Reason.EXPIRED, Reason.DEADLINE_UNMEETABLE)
    assert len(started) + len(scene.of(Expired)) + len(scene.refusals) == len(arrivals)


def run(scene: Scene, ns: int) -> None:
    """Time passes; calls end 500 ms after their start."""
    until_ns = scene.now_ns + ns
    while scene.running:
        first = next(iter(scene.running.values()))
        ends_ns = scene.reservations[first.id].reservation.granted_ns + 500 * MS
        if ends_ns > until_ns:
            break
        scene.pass_time(ends_ns - scene.now_ns)
        scene.end(first)
    scene.pass_time(until_ns - scene.now_ns)


def test_dropping_only_the_expired_would_start_what_cannot_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def starts_too_late(scene: Scene) -> int:
        served_for(scene, 0.5, times=1)
        for _ in range(100):
            run(scene, 50 * MS)
            scene.submit("a", workflow="chat", deadline_ns=scene.now_ns + 800 * MS)
        run(scene, 10 * NS)
        return sum(
            event.reservation.granted_ns + 500 * MS > (event.request.deadline_ns or 1 << 62)
            for event in scene.of(Dispatched)
        )

    config = gateway(slots=1, tenant_slots=1)
    assert starts_too_late(Scene(config)) == 0
    careless = Scene(config)
    monkeypatch.setattr(careless.admission._deadlines, "service_ns", lambda *_: 0)
    monkeypatch.setattr(careless.admission._forecast, "wait_ns", lambda *_: 0)
    assert starts_too_late(careless) > 10


def test_visitors_that_never_come_back_take_the_place_of_nobody_and_no_memory() -> None:
    estimator = Estimator(EstimationConfig(), 100_000)
    for _ in range(2):
        estimator.served(0, request(None, tenant="regular"), 4_000, NS)
    for number in range(5_000):
        estimator.served(0, request(None, tenant=f"once-{number}"), 10, NS)
    assert len(estimator) == NEWCOMERS + 1
    assert estimator.output_tokens(request(None, tenant="regular")) == 5_000
    assert estimator.output_tokens(request(None, tenant="once-4999")) == 13
