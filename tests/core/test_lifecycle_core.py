"""The whole gateway without its sockets: many requests, one scheduler, every order of events."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway.core import GatewayCore
from agentload.gateway.failures import FailureKind
from agentload.gateway.protocol import (
    Action,
    Arrived,
    CancelUpstream,
    ClientLeft,
    Drain,
    EndStream,
    Event,
    FailStream,
    ForwardHeaders,
    Record,
    Respond,
    StartUpstream,
    Stop,
    Tick,
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
)
from agentload.gateway.readiness import Readiness
from agentload.gateway.settings import GatewaySettings
from agentload.model import NS, Outcome
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, UpstreamLimits

SSE = ((b"content-type", b"text/event-stream"),)
JSON = ((b"content-type", b"application/json"),)
ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
EVENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def gateway(*, slots: int = 1, max_queue: int = 2, max_wait_s: float = 30, **more: Any) -> GatewayCore:
    classes = {
        "standard": ClassConfig(max_queue=max_queue, tenant_max_queue=max_queue, max_wait_s=max_wait_s)
    }
    pools = {"shared": PoolConfig(slots=slots, tenant_slots=slots, classes=classes)}
    return GatewayCore(
        GatewayConfig(pools=pools, **more), GatewaySettings(total_s=60, first_byte_s=20), Random(1)
    )


def arrival(request_id: int, *, stream: bool = False, tenant: str = "t", **headers: str) -> Arrived:
    body = {
        "model": "m",
        "max_tokens": 8,
        "stream": stream,
        "messages": [{"role": "user", "content": "hello"}],
    }
    fields = {"x-tenant": tenant} | {name.replace("_", "-"): value for name, value in headers.items()}
    wire = tuple((name.encode(), value.encode()) for name, value in fields.items())
    return Arrived(request_id, wire, json.dumps(body).encode())


def kinds(actions: list[Action]) -> list[tuple[int, type]]:
    return [(action.request_id, type(action)) for action in actions]


def responses(actions: list[Action]) -> dict[int, Respond]:
    return {action.request_id: action for action in actions if isinstance(action, Respond)}


def finish(core: GatewayCore, now_ns: int, request_id: int) -> list[Action]:
    core.handle(now_ns, UpstreamHeaders(request_id, 200, JSON))
    core.handle(now_ns, UpstreamData(request_id, ANSWER))
    return core.handle(now_ns, UpstreamEnded(request_id))


# --------------------------------------------------------------------------- by example


def test_the_next_one_starts_when_the_first_has_ended() -> None:
    core = gateway()
    assert kinds(core.handle(0, arrival(1))) == [(1, StartUpstream)]
    assert core.handle(1, arrival(2)) == []
    assert kinds(finish(core, 2, 1)) == [(1, Respond), (1, Record), (2, StartUpstream)]
    assert kinds(finish(core, 3, 2)) == [(2, Respond), (2, Record)]
    assert core.open_requests == 0
    assert core.next_wakeup_ns() is None


def test_a_full_queue_is_a_429_with_a_reason_and_a_time_to_come_back() -> None:
    core = gateway(max_queue=1)
    core.handle(0, arrival(1))
    core.handle(0, arrival(2))
    answer = responses(core.handle(0, arrival(3)))[3]
    headers = dict(answer.headers)
    assert answer.status == 429
    assert headers[b"x-admission-reason"].endswith(b"_full")
    assert int(headers[b"retry-after"]) >= 1
    assert core.open_requests == 2


def test_a_deadline_that_passes_in_the_queue_is_a_504_at_that_time() -> None:
    core = gateway()
    core.handle(0, arrival(1))
    core.handle(0, arrival(2, x_deadline_ms="500"))
    wakeup_ns = core.next_wakeup_ns()
    assert wakeup_ns is not None
    assert wakeup_ns <= NS // 2
    assert responses(core.handle(wakeup_ns, Tick()))[2].status == 504


def test_a_client_that_leaves_makes_room_for_the_next() -> None:
    core = gateway()
    core.handle(0, arrival(1))
    core.handle(0, arrival(2))
    assert kinds(core.handle(1, ClientLeft(1))) == [(1, CancelUpstream), (1, Record), (2, StartUpstream)]
    assert core.admission.snapshot(1).counters.cancelled == 1


def test_a_client_that_leaves_the_queue_never_reaches_the_provider() -> None:
    core = gateway()
    core.handle(0, arrival(1))
    core.handle(0, arrival(2))
    assert kinds(core.handle(1, ClientLeft(2))) == [(2, Record)]
    assert core.admission.snapshot(1).waiting == 0
    assert kinds(finish(core, 2, 1)) == [(1, Respond), (1, Record)]


def test_a_timeout_frees_the_slot_at_the_instant_it_was_announced_for() -> None:
    core = gateway()
    core.handle(0, arrival(1, stream=True))
    core.handle(0, arrival(2))
    wakeup_ns = core.next_wakeup_ns()
    assert wakeup_ns == 20 * NS
    actions = core.handle(wakeup_ns, Tick())
    assert kinds(actions) == [(1, CancelUpstream), (1, Respond), (1, Record), (2, StartUpstream)]


def test_a_needless_tick_changes_nothing() -> None:
    core = gateway()
    core.handle(0, arrival(1, stream=True))
    core.handle(0, UpstreamHeaders(1, 200, SSE))
    core.handle(NS, UpstreamData(1, EVENT))
    assert core.handle(20 * NS, Tick()) == []
    assert core.next_wakeup_ns() == 31 * NS


def wait_until_something_starts(core: GatewayCore) -> tuple[int, list[Action]]:
    """Nothing but time passes."""
    while (wakeup_ns := core.next_wakeup_ns()) is not None:
        actions = core.handle(wakeup_ns, Tick())
        if actions:
            return wakeup_ns, actions
    raise AssertionError("nothing will ever start")


def refuse(core: GatewayCore, now_ns: int, request_id: int, retry_after: bytes) -> list[Action]:
    core.handle(now_ns, UpstreamHeaders(request_id, 429, ((b"retry-after", retry_after), *JSON)))
    return core.handle(now_ns, UpstreamEnded(request_id))


def test_a_providers_refusal_holds_everybody_back_and_one_goes_first_afterwards() -> None:
    core = gateway(slots=2)
    core.handle(0, arrival(1))
    assert refuse(core, 0, 1, b"5") == [], "it waits for another call"
    assert core.handle(1, arrival(2)) == []
    at_ns, actions = wait_until_something_starts(core)
    assert (at_ns, kinds(actions)) == (5 * NS, [(1, StartUpstream)])
    assert kinds(core.handle(6 * NS, UpstreamHeaders(1, 200, JSON))) == [(2, StartUpstream)]
    counters = core.admission.snapshot(0).counters
    assert (counters.provider_refusals, counters.retried, counters.admitted) == (1, 1, 2)


def test_a_request_that_fails_twice_is_answered() -> None:
    core = gateway()
    core.handle(0, arrival(1))
    refuse(core, 0, 1, b"1")
    at_ns, _ = wait_until_something_starts(core)
    actions = refuse(core, at_ns, 1, b"1")
    assert responses(actions)[1].status == 503
    [record] = [action for action in actions if isinstance(action, Record)]
    assert (record.upstream_attempts, record.waited_ns) == (2, NS)
    assert core.open_requests == 0


def test_a_full_queue_has_no_place_for_a_retry() -> None:
    core = gateway(max_queue=1)
    core.handle(0, arrival(1))
    core.handle(0, arrival(2))
    actions = refuse(core, 1, 1, b"1")
    # The lane's bound is one, and the other one came first.
    assert responses(actions)[1].status == 503
    assert core.admission.snapshot(1).counters.failed == 1
    assert core.retry_budget.left == 3


@pytest.mark.parametrize("limited", ["tokens_per_minute", "requests_per_minute"])
def test_what_the_provider_allows_is_never_exceeded(limited: str) -> None:
    core = gateway(
        slots=4, upstream=UpstreamLimits.model_validate({limited: 600, "bucket_s": 1, "margin": 0})
    )
    started = sum(
        isinstance(action, StartUpstream) for n in range(1, 4) for action in core.handle(0, arrival(n))
    )
    assert started == (1 if limited == "tokens_per_minute" else 3)


def test_a_drain_refuses_newcomers_and_lets_the_rest_finish() -> None:
    core = gateway()
    core.handle(0, arrival(1))
    core.handle(0, arrival(2))
    assert core.handle(1, Drain()) == []
    answer = responses(core.handle(2, arrival(3)))[3]
    assert (answer.status, dict(answer.headers)[b"x-admission-reason"]) == (503, b"shutting_down")
    assert core.readiness.problem(2) == "shutting down"
    assert (2, StartUpstream) in kinds(finish(core, 3, 1))
    finish(core, 4, 2)
    assert core.open_requests == 0


def test_a_stop_ends_everything_with_an_answer() -> None:
    core = gateway()
    core.handle(0, arrival(1))
    core.handle(0, arrival(2))
    actions = core.handle(1, Stop())
    assert {number: answer.status for number, answer in responses(actions).items()} == {1: 503, 2: 503}
    assert core.open_requests == 0
    snapshot = core.admission.snapshot(1)
    assert (snapshot.waiting, snapshot.running) == (0, 0)


def test_what_cannot_be_read_is_answered_and_forgotten() -> None:
    core = gateway()
    actions = core.handle(0, Arrived(1, (), b"{"))
    assert kinds(actions) == [(1, Respond), (1, Record)]
    assert responses(actions)[1].status == 400
    assert core.open_requests == 0
    assert core.next_wakeup_ns() is None


def test_an_unknown_policy_is_an_error_that_names_the_known_ones() -> None:
    from agentload.errors import UsageError

    with pytest.raises(UsageError, match="fifo"):
        gateway(policy="fifoo")


# --------------------------------------------------------------------------- readiness


def test_a_gateway_whose_every_call_fails_is_not_ready_until_the_evidence_fades() -> None:
    readiness = Readiness(10 * NS)
    for second in range(11):
        assert readiness.problem(second * NS) is None
        readiness.observe(second * NS, failed=True)
    assert readiness.problem(10 * NS) == "the last 11 upstream calls failed"
    assert readiness.problem(21 * NS) is None


def test_one_success_makes_it_ready() -> None:
    readiness = Readiness(NS)
    for second in range(9):
        readiness.observe(second * NS, failed=True)
    readiness.observe(9 * NS, failed=False)
    assert readiness.problem(9 * NS) is None


def test_a_burst_of_failures_alone_does_not_make_it_unready() -> None:
    readiness = Readiness(10 * NS)
    for _ in range(100):
        readiness.observe(NS, failed=True)
    assert readiness.problem(NS) is None


# --------------------------------------------------------------------------- every order of events


class Outside:
    """Clients and a provider that do anything, and a witness of what the gateway does."""

    def __init__(self, core: GatewayCore, slots: int) -> None:
        self.core = core
        self.slots = slots
        self.now_ns = 0
        self.arrived = 0
        self.calls: dict[int, bool] = {}
        """Calls at the provider; True once their headers are out."""
        self.ended: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()

    def do(self, event: Event) -> None:
        if isinstance(event, UpstreamEnded | UpstreamFailed):
            self.calls.pop(event.request_id, None)
        for action in self.core.handle(self.now_ns, event):
            self._see(action)
        assert len(self.calls) <= self.slots, "more calls in flight than slots"
        self._reconcile()

    def _see(self, action: Action) -> None:
        number = action.request_id
        assert not self.ended[number], f"{action} after the end"
        match action:
            case StartUpstream():
                assert number not in self.calls
                self.calls[number] = False
            case CancelUpstream():
                del self.calls[number]
            case Respond() | ForwardHeaders():
                self.answered[number] += 1
                assert self.answered[number] == 1, "answered twice"
            case EndStream() | FailStream():
                assert self.answered[number] == 1
            case Record():
                self.ended[number] += 1
                assert action.outcome is Outcome.ABANDONED or self.answered[number] or action.reason == "ok"
                assert number not in self.calls, "ended with the provider still working for it"
            case _:
                pass

    def _reconcile(self) -> None:
        snapshot = self.core.admission.snapshot(self.now_ns)
        counters = snapshot.counters
        assert snapshot.running == len(self.calls)
        assert snapshot.running + snapshot.waiting == self.core.open_requests
        assert counters.offered == counters.refused + counters.admitted
        ended = (
            counters.completed + counters.failed + counters.expired + counters.cancelled + counters.evicted
        )
        assert counters.admitted == ended + snapshot.running + snapshot.waiting

    def step(self, what: str, which: int) -> None:
        if what == "arrive":
            self.arrived += 1
            deadline = {"x_deadline_ms": "800"} if which % 3 == 0 else {}
            self.do(arrival(self.arrived, stream=which % 2 == 0, tenant=f"t{which % 3}", **deadline))
        elif what == "tick":
            self.now_ns = max(self.now_ns, self.core.next_wakeup_ns() or 0)
            self.do(Tick())
        elif what == "wait":
            self.now_ns += which * NS // 10
        elif what == "leave" and self.arrived:
            self.do(ClientLeft(1 + which % self.arrived))
        elif self.calls:
            self._provider(what, sorted(self.calls)[which % len(self.calls)], which)

    def _provider(self, what: str, number: int, which: int) -> None:
        if what == "headers" and not self.calls[number]:
            self.calls[number] = True
            status = [200, 200, 200, 429, 500, 400][which % 6]
            self.do(UpstreamHeaders(number, status, SSE if which % 2 else JSON))
        elif what == "data" and self.calls[number]:
            self.do(UpstreamData(number, [EVENT, DONE, ANSWER, b"data: {", EVENT * 3][which % 5]))
        elif what == "end" and self.calls[number]:
            self.do(UpstreamEnded(number, clean=which % 4 > 0))
        elif what == "fail":
            self.do(UpstreamFailed(number, list(FailureKind)[which % 3]))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["arrive", "arrive", "headers", "data", "data", "end", "fail", "leave", "wait", "tick"]
        ),
        st.integers(0, 60),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 3), st.sampled_from(["sfq", "fifo"]), st.booleans())
def test_whatever_happens_everything_ends_once_and_nothing_leaks(
    steps: list[tuple[str, int]], slots: int, policy: str, limited: bool
) -> None:
    limits = UpstreamLimits(tokens_per_minute=6_000, bucket_s=1) if limited else UpstreamLimits()
    outside = Outside(gateway(slots=slots, policy=policy, upstream=limits), slots)
    for what, which in steps:
        outside.step(what, which)
    outside.do(Stop())
    assert sum(outside.ended.values()) == outside.arrived
    assert outside.calls == {}
    snapshot = outside.core.admission.snapshot(outside.now_ns)
    assert (snapshot.waiting, snapshot.running) == (0, 0)
    assert snapshot.pools["shared"].reserved_units == 0


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_the_same_events_give_the_same_actions(steps: list[tuple[str, int]]) -> None:
    def run() -> list[str]:
        seen: list[str] = []

        class Log(Outside):
            def _see(self, action: Action) -> None:
                seen.append(repr(action))
                super()._see(action)

        outside = Log(gateway(slots=2), 2)
        for what, which in steps:
            outside.step(what, which)
        return seen

    assert run() == run()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_left_alone_it_ends_by_its_own_timers(steps: list[tuple[str, int]]) -> None:
    outside = Outside(gateway(slots=2), 2)
    for what, which in steps:
        outside.step(what, which)
    for _ in range(2_000):
        wakeup_ns = outside.core.next_wakeup_ns()
        if wakeup_ns is None:
            break
        outside.now_ns = max(outside.now_ns, wakeup_ns)
        outside.do(Tick())
    assert outside.core.open_requests == 0
    assert sum(outside.ended.values()) == outside.arrived
