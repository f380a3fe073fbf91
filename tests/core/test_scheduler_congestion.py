"""The window of calls in flight: narrowed by refusals, widened by answers, reopened one call at a time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.congestion import (
    FIRST_PAUSE_NS,
    LONGEST_PAUSE_NS,
    UNLIMITED,
    CongestionWindow,
)
from scheduler_kit import MS, NS, Scene, gateway


class Provider:
    """So many calls at once; the others are refused at once, or for a named time. One call takes 100 ms."""

    def __init__(self, slots: int, *, widest: int = 64, named_ns: int | None = None) -> None:
        self.window = CongestionWindow(widest)
        self.widest = widest
        self.slots = slots
        self.named_ns = named_ns
        self.now_ns = 0
        self.paused_until_ns = 0
        self.serving: list[int] = []
        """When each call was sent."""
        self.refused = self.served = 0

    def tick(self) -> int:
        """A millisecond passes, and as many calls as may be sent are; how many."""
        self.now_ns += MS
        for sent_ns in [at for at in self.serving if at + 100 * MS <= self.now_ns]:
            self.served += self.window.accepted(sent_ns) or 1
            self.serving.remove(sent_ns)
            self.window.in_flight -= 1
        sent = 0
        while self.now_ns >= self.paused_until_ns and self.may_send():
            self.window.in_flight += 1
            sent += 1
            if self.accepts():
                self.serving.append(self.now_ns)
            else:
                self.refuse()
        return sent

    def accepts(self) -> bool:
        return len(self.serving) < self.slots

    def may_send(self) -> bool:
        return self.window.in_flight < self.widest and not self.window.full()

    def refuse(self) -> None:
        self.refused += 1
        pause_ns = self.window.refused(self.now_ns, self.now_ns, named=self.named_ns is not None)
        self.paused_until_ns = max(self.paused_until_ns, self.now_ns + (self.named_ns or pause_ns))
        self.window.in_flight -= 1


def run(provider: Provider, seconds: float) -> list[int]:
    return [provider.tick() for _ in range(round(seconds * 1000))]


def test_until_something_is_refused_nothing_is_limited() -> None:
    window = CongestionWindow(4)
    for sent_ns in range(100):
        assert not window.full()
        window.in_flight += 1
        assert not window.accepted(sent_ns)
    assert window.limit == UNLIMITED


def test_it_finds_out_how_many_the_provider_takes_and_keeps_it_busy() -> None:
    provider = Provider(10, widest=64)
    run(provider, 5)
    provider.served = provider.refused = 0
    run(provider, 20)
    assert provider.served >= 0.85 * 10 * 10 * 20, "ten at once, ten times a second"
    assert provider.refused <= 0.1 * provider.served, "what a budget of second calls makes good"


def used(share: float, seed: int) -> float:
    """Part of the full rate served in 10 s while the provider refuses `share` of the calls by chance."""
    provider, random = Provider(10_000, widest=32), Random(seed)
    accepts = provider.accepts
    provider.accepts = lambda: accepts() and random.random() >= share  # type: ignore[method-assign]
    run(provider, 10)
    return provider.served / (32 * 10 * 10)


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0, 0.03), seed=st.integers(0, 999))
def test_stray_refusals_do_not_keep_a_provider_from_being_used(share: float, seed: int) -> None:
    # All calls go and end together, which is the worst that can be: of 200 such runs, one used 52 %.
    assert used(share, seed) >= 0.4


def test_stray_refusals_cost_little_on_the_average() -> None:
    assert sum(used(0.03, seed) for seed in range(12)) / 12 >= 0.8


def test_calls_of_one_round_trip_narrow_it_once() -> None:
    window = CongestionWindow(64)
    window.in_flight = 40
    for _ in range(40):
        window.refused(NS, NS - 1, named=False)
        window.in_flight -= 1
    assert window.limit == 40


@pytest.mark.parametrize("old", [0, 7])
def test_after_a_named_pause_one_call_goes_and_each_answer_lets_two_follow(old: int) -> None:
    window = CongestionWindow(64)
    window.in_flight = 32
    window.refused(NS, NS, named=True)
    window.in_flight = old
    sent = []
    for round_trip in range(1, 5):
        calls = 0
        while not window.full():
            window.in_flight += 1
            calls += 1
        sent.append(calls)
        for _ in range(calls):
            window.accepted(NS + round_trip)
        window.in_flight -= calls
    assert sent == [1, 2, 4, 8], "beside those that were in service already"


def test_a_named_pause_is_followed_by_one_call_however_much_was_accepted_before() -> None:
    window = CongestionWindow(64)
    for n in range(200):
        window.in_flight = 32
        window.accepted(n)
    window.refused(NS, NS, named=True)
    for n in range(31):  # those that were in service when the pause began
        window.accepted(NS - 1 - n)
        window.in_flight -= 1
    assert window.limit != UNLIMITED, "or else nobody asks whether it is full"
    window.in_flight = 0
    assert not window.full()
    window.in_flight = 1
    assert window.full()


def test_an_outage_that_begins_with_calls_in_service_does_not_make_the_way_back_longer() -> None:
    provider = Provider(16, widest=16)
    run(provider, 1)
    provider.slots = 0
    run(provider, 3)
    provider.slots, provider.served = 16, 0
    run(provider, 2)
    # A probe a second by then, and four round trips from one call to sixteen.
    assert provider.served >= 16 * 10 * (2 - 1 - 0.4)


def test_refusals_with_nothing_accepted_between_them_pause_longer_and_longer() -> None:
    window = CongestionWindow(64)
    pauses = []
    for n in range(10):
        assert not window.full()
        window.in_flight += 1
        pauses.append(window.refused(n * NS, n * NS, named=False))
        window.in_flight -= 1
    assert pauses[:3] == [FIRST_PAUSE_NS, 2 * FIRST_PAUSE_NS, 4 * FIRST_PAUSE_NS]
    assert pauses[-1] == LONGEST_PAUSE_NS
    assert window.limit == 1, "one probe at a time"


def test_an_outage_is_probed_and_does_not_make_the_window_small_for_good() -> None:
    provider = Provider(16, widest=16)
    run(provider, 1)
    provider.slots = 0
    provider.refused = 0
    run(provider, 5)
    assert provider.refused <= 16, "no more than were in service, in five seconds"
    provider.slots = 16
    sent = run(provider, 3)
    assert max(sent) <= 16
    assert provider.window.limit == UNLIMITED


def test_the_lag_is_what_doubling_costs() -> None:
    window = CongestionWindow(32)
    assert window.lag_ns(250 * MS) == 0
    window.in_flight = 10
    window.refused(NS, NS, named=True)
    window.in_flight = 0
    # 1, 2, 4, 8, 16 calls in five round trips, where 32 in each would have gone.
    assert window.lag_ns(250 * MS) == pytest.approx((5 - 31 / 32) * 250 * MS, rel=1e-6)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "accept", "accept", "refuse", "named", "end"]), st.integers(0, 9)
    ),
    max_size=200,
)


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.integers(1, 20))
def test_it_is_never_below_one_and_never_stuck(events: list[tuple[str, int]], widest: int) -> None:
    window = CongestionWindow(widest)
    flying: list[int] = []
    now_ns = 0
    for kind, which in events:
        now_ns += which
        if kind == "send":
            if len(flying) < widest and not window.full():
                flying.append(now_ns)
                window.in_flight += 1
        elif flying:
            sent_ns = flying[which % len(flying)]
            if kind == "accept":
                window.accepted(sent_ns)
            else:
                if kind != "end":
                    window.refused(now_ns, sent_ns, named=kind == "named")
                flying.remove(sent_ns)
                window.in_flight -= 1
        assert window.limit >= 1
        assert flying or not window.full(), "with nothing in flight one call may always go"


# ---------------------------------------------------------------- in the scheduler


def test_a_narrow_window_is_shared_out_by_weight() -> None:
    scene = Scene(gateway(slots=16, tenant_slots=16, weights={"a": 3.0, "b": 1.0}))
    for _ in range(400):
        scene.submit("a", 100)
        scene.submit("b", 100)
    random, refused = Random(1), 0
    while len(scene.dispatched) < 300:
        scene.now_ns += 10 * MS
        request = scene.running[sorted(scene.running)[0]]
        if len(scene.running) > 4 and random.random() < 0.3:  # more than four at once are too many
            refused += 1
            scene.admission.provider_refused(scene.now_ns, request.id, None, by_rate=False)
            scene.end(request, ok=False)
        else:
            scene.admission.provider_accepted(request.id)
            scene.end(request)
        scene.pass_time(0 if scene.running else NS)
    assert refused > 10
    later = scene.dispatched[100:]
    assert later.count("a") / len(later) == pytest.approx(0.75, abs=0.05)
