"""One request's state machine: each path by example, then every order of events by property."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway.envelope import Envelope, UpstreamCall
from agentload.gateway.failures import FailureKind
from agentload.gateway.lifecycle import RequestLifecycle, State
from agentload.gateway.protocol import (
    CancelUpstream,
    ClientLeft,
    EndStream,
    FailStream,
    ForwardData,
    ForwardHeaders,
    NotRetried,
    Progress,
    ProviderAccepted,
    ProviderRefused,
    Record,
    Respond,
    Retry,
    Settle,
    StartUpstream,
    Stop,
    TimedOut,
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
    UpstreamRead,
    Withdraw,
)
from agentload.gateway.retry_budget import RetryBudget
from agentload.gateway.settings import GatewaySettings, UpstreamRetries
from agentload.gateway.usage import ProviderError, Reading, Usage
from agentload.model import NS, Outcome
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig, RetryConfig
from agentload.scheduler.events import Dispatched, Expired, Refused
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import Request

ARRIVED = 10 * NS
SETTINGS = GatewaySettings(
    connect_s=5, first_byte_s=60, idle_s=30, total_s=600, linger_s=0.25, answer_margin_s=0.02
)
SSE = ((b"content-type", b"text/event-stream; charset=utf-8"),)
JSON = ((b"content-type", b"application/json"),)
DONE = b"data: [DONE]\n\n"
ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}'


def delta(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def lifecycle(
    *, stream: bool = False, deadline_ns: int | None = None, retries: RetryBudget | None = None
) -> RequestLifecycle:
    request = Request(
        id=1,
        tenant="t",
        service_class="standard",
        input_tokens=8,
        text_chars=30,
        arrived_ns=ARRIVED,
        deadline_ns=deadline_ns,
    )
    envelope = Envelope(request=request, call=UpstreamCall(body=b"{}", stream=stream))
    return RequestLifecycle(envelope, SETTINGS, RetryConfig(), Random(1), retries)


def dispatched(one: RequestLifecycle) -> Dispatched:
    """What the real scheduler says when nothing is in the way."""
    admission = Admission(GatewayConfig(), Random(1))
    admission.submit(ARRIVED, one.request)
    [event] = admission.poll(ARRIVED)
    assert isinstance(event, Dispatched)
    return event


def refused(one: RequestLifecycle, reason: Reason = Reason.CLASS_QUEUE_FULL) -> Refused:
    return Refused(one.request, reason, 3 if reason.invites_retry else None, None)


def called(**fields: Any) -> RequestLifecycle:
    one = lifecycle(**fields)
    assert [type(item) for item in one.handle(ARRIVED, dispatched(one))] == [StartUpstream]
    return one


def streaming() -> RequestLifecycle:
    one = called(stream=True)
    one.handle(ARRIVED, UpstreamHeaders(1, 200, SSE))
    assert [type(item) for item in one.handle(ARRIVED, UpstreamData(1, delta("hi")))] == [
        ForwardHeaders,
        ForwardData,
    ]
    return one


def last(step: list[Any]) -> Record:
    assert isinstance(step[-1], Record)
    return step[-1]


def only(step: list[Any], kind: type) -> Any:
    found = [item for item in step if isinstance(item, kind)]
    assert len(found) == 1, step
    return found[0]


def kinds(step: list[Any]) -> list[type]:
    return [type(item) for item in step]


# --------------------------------------------------------------------------- answers


def test_a_plain_call_is_answered_when_it_is_whole() -> None:
    one = called()
    assert one.handle(ARRIVED, UpstreamHeaders(1, 200, JSON)) == [ProviderAccepted(1)]
    assert one.handle(ARRIVED, UpstreamData(1, ANSWER[:20])) == []
    assert one.handle(ARRIVED, UpstreamData(1, ANSWER[20:])) == []
    step = one.handle(ARRIVED + NS, UpstreamEnded(1))
    assert kinds(step) == [Respond, Settle, Record]
    assert (step[0].status, step[0].body) == (200, ANSWER)
    assert step[1] == Settle(1, 9, 1, ok=True)
    assert last(step).outcome is Outcome.ANSWERED
    assert last(step).upstream_ns == NS


def test_a_stream_is_passed_on_piece_by_piece() -> None:
    one = called(stream=True)
    assert one.handle(ARRIVED, UpstreamHeaders(1, 200, SSE)) == [ProviderAccepted(1)]
    step = one.handle(ARRIVED + NS, UpstreamData(1, delta("one")))
    assert kinds(step) == [ForwardHeaders, ForwardData]
    assert dict(step[0].headers)[b"server-timing"] == b"queue;dur=0.000, upstream;dur=1000.000"
    assert one.handle(ARRIVED, UpstreamData(1, delta("two"))) == [ForwardData(1, delta("two"))]
    assert one.handle(ARRIVED, UpstreamData(1, DONE)) == [ForwardData(1, DONE)]
    step = one.handle(ARRIVED, UpstreamEnded(1))
    assert kinds(step) == [EndStream, Settle, Record]
    assert step[1] == Settle(1, 8, 2, ok=True)


def test_long_output_is_reported_while_it_comes() -> None:
    one = streaming()
    words = delta(" word" * 130)
    assert kinds(one.handle(ARRIVED, UpstreamData(1, words))) == [ForwardData, Progress]
    assert kinds(one.handle(ARRIVED, UpstreamData(1, delta("x")))) == [ForwardData]


def test_a_simulated_call_needs_no_bytes() -> None:
    one = called(stream=True)
    one.handle(ARRIVED, UpstreamHeaders(1, 200))
    step = one.handle(ARRIVED, UpstreamRead(1, Reading(tokens=1)))
    assert kinds(step) == [ForwardHeaders, ForwardData]
    one.handle(ARRIVED, UpstreamRead(1, Reading(tokens=4, usage=Usage(8, 5), terminal=True)))
    assert only(one.handle(ARRIVED, UpstreamEnded(1)), Settle) == Settle(1, 8, 5, ok=True)
    plain = called()
    plain.handle(ARRIVED, UpstreamHeaders(1, 200))
    plain.handle(ARRIVED, UpstreamRead(1, Reading(usage=Usage(8, 5), terminal=True)))
    assert only(plain.handle(ARRIVED, UpstreamEnded(1)), Settle).ok


# --------------------------------------------------------------------------- refused and expired


def test_a_refusal_carries_the_schedulers_promise() -> None:
    one = lifecycle()
    step = one.handle(ARRIVED + NS, refused(one))
    assert kinds(step) == [Respond, Record]
    assert step[0].status == 429
    assert dict(step[0].headers)[b"retry-after"] == b"3"
    assert (last(step).outcome, last(step).reason) == (Outcome.REJECTED, "class_queue_full")
    assert last(step).waited_ns == NS


def test_a_deadline_in_the_queue_is_a_504() -> None:
    one = lifecycle(deadline_ns=ARRIVED + NS)
    step = one.handle(ARRIVED + NS, Expired(one.request, Reason.EXPIRED))
    assert kinds(step) == [Respond, Record]
    assert step[0].status == 504
    assert last(step).outcome is Outcome.EXPIRED


def test_a_call_that_cannot_be_answered_in_time_is_not_made() -> None:
    one = lifecycle(deadline_ns=ARRIVED + NS)
    step = one.handle(ARRIVED + NS - 10_000_000, dispatched(one))
    assert kinds(step) == [Respond, Settle, Record]
    assert step[0].status == 504
    assert step[1] == Settle(1, 0, 0, ok=False)


def test_a_lost_lease_ends_the_call_and_releases_nothing_twice() -> None:
    one = called()
    step = one.handle(ARRIVED, Expired(one.request, Reason.LEASE_EXPIRED))
    assert kinds(step) == [CancelUpstream, Respond, Record]
    assert step[1].status == 504


# --------------------------------------------------------------------------- the client leaves


def test_a_client_that_leaves_the_queue_is_withdrawn() -> None:
    step = lifecycle().handle(ARRIVED, ClientLeft(1))
    assert kinds(step) == [Withdraw, Record]
    assert last(step).outcome is Outcome.ABANDONED


@pytest.mark.parametrize("headers_came", [False, True])
def test_a_client_that_leaves_before_the_first_byte_cancels_the_call(headers_came: bool) -> None:
    one = called()
    if headers_came:
        one.handle(ARRIVED, UpstreamHeaders(1, 200, JSON))
    assert kinds(one.handle(ARRIVED, ClientLeft(1))) == [CancelUpstream, Withdraw, Record]


def test_a_client_that_leaves_a_stream_is_charged_what_was_produced() -> None:
    one = streaming()
    step = one.handle(ARRIVED, ClientLeft(1))
    assert kinds(step) == [CancelUpstream, Progress, Withdraw, Record]
    assert step[1] == Progress(1, 1)


def test_a_client_that_closes_after_the_terminal_event_was_answered() -> None:
    one = streaming()
    one.handle(ARRIVED, UpstreamData(1, DONE))
    step = one.handle(ARRIVED, ClientLeft(1))
    assert kinds(step) == [CancelUpstream, Settle, Record]
    assert last(step).outcome is Outcome.ANSWERED


# --------------------------------------------------------------------------- the provider fails


@pytest.mark.parametrize(
    "event", [UpstreamEnded(1), UpstreamEnded(1, clean=False), UpstreamFailed(1, FailureKind.BROKEN)]
)
def test_a_cut_stream_never_looks_complete(event: Any) -> None:
    step = streaming().handle(ARRIVED, event)
    assert kinds(step) == [FailStream, Settle, Record]
    assert b"[DONE]" not in step[0].data
    assert json.loads(step[0].data.removeprefix(b"data: "))["error"]["code"] == "upstream_truncated"
    assert not step[1].ok
    assert last(step).upstream_failed


def test_an_error_inside_a_stream_ends_it() -> None:
    error = b'data: {"error":{"message":"org-1234567","code":"server_is_overloaded"}}\n\n'
    step = streaming().handle(ARRIVED, UpstreamData(1, delta("two") + error + DONE))
    assert kinds(step) == [ForwardData, CancelUpstream, FailStream, Settle, Record]
    assert step[0].data == delta("two")
    assert b"org-1234567" not in step[2].data


def test_an_error_before_the_first_token_gets_an_honest_status() -> None:
    one = called(stream=True)
    one.handle(ARRIVED, UpstreamHeaders(1, 200, SSE))
    step = one.handle(ARRIVED, UpstreamData(1, b'data: {"error":{"message":"m","code":"c"}}\n\n'))
    assert kinds(step) == [CancelUpstream, Respond, Settle, Record]
    assert step[1].status == 502


def test_a_stream_that_ends_before_it_begins_is_a_502() -> None:
    one = called(stream=True)
    one.handle(ARRIVED, UpstreamHeaders(1, 200, SSE))
    assert only(one.handle(ARRIVED, UpstreamEnded(1)), Respond).status == 502


@pytest.mark.parametrize(
    ("body", "clean"), [(ANSWER[:-5], True), (ANSWER, False), (b"", True), (b'{"error":{"code":"c"}}', True)]
)
def test_a_plain_answer_that_is_not_whole_is_a_502(body: bytes, clean: bool) -> None:
    one = called()
    one.handle(ARRIVED, UpstreamHeaders(1, 200, JSON))
    if body:
        one.handle(ARRIVED, UpstreamData(1, body))
    step = one.handle(ARRIVED, UpstreamEnded(1, clean=clean))
    assert only(step, Respond).status == 502
    assert not only(step, Settle).ok


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_providers_refusal_slows_everybody_down_and_is_our_503(status: int) -> None:
    one = called()
    one.handle(ARRIVED, UpstreamHeaders(1, status, ((b"retry-after", b"7"), *JSON)))
    one.handle(ARRIVED, UpstreamData(1, b'{"error":{"code":"rate_limit_exceeded","message":"Limit"}}'))
    step = one.handle(ARRIVED, UpstreamEnded(1))
    assert kinds(step) == [Respond, ProviderRefused, Settle, Record]
    assert step[0].status == 503
    assert 7 <= int(dict(step[0].headers)[b"retry-after"]) <= 11
    assert step[1] == ProviderRefused(1, 7 * NS, by_rate=status == 429)
    assert step[2] == Settle(1, 0, 0, ok=False)


def test_a_refusal_whose_body_is_cut_is_still_a_refusal() -> None:
    one = called()
    one.handle(ARRIVED, UpstreamHeaders(1, 429, JSON))
    assert ProviderRefused in kinds(one.handle(ARRIVED, UpstreamEnded(1, clean=False)))


def test_what_is_the_callers_fault_is_passed_on() -> None:
    one = called()
    one.handle(ARRIVED, UpstreamHeaders(1, 404, JSON))
    one.handle(ARRIVED, UpstreamData(1, b'{"error":{"code":"model_not_found"}}'))
    step = one.handle(ARRIVED, UpstreamEnded(1))
    assert only(step, Respond).status == 404
    assert b"model_not_found" in only(step, Respond).body
    assert not last(step).upstream_failed


@pytest.mark.parametrize(
    ("kind", "status"),
    [(FailureKind.CONNECT, 503), (FailureKind.CONNECT_TIMEOUT, 503), (FailureKind.BROKEN, 502)],
)
def test_a_provider_that_cannot_be_reached(kind: FailureKind, status: int) -> None:
    step = called().handle(ARRIVED, UpstreamFailed(1, kind))
    narrowed = [] if kind is FailureKind.BROKEN else [ProviderRefused]
    assert kinds(step) == [Respond, *narrowed, Settle, Record]
    assert step[0].status == status
    assert (b"retry-after" in dict(step[0].headers)) == (status == 503)
    assert last(step).upstream_failed


# --------------------------------------------------------------------------- timers


def test_every_timeout_fits_into_what_the_deadline_leaves() -> None:
    one = lifecycle(stream=True, deadline_ns=ARRIVED + 2 * NS)
    start = only(one.handle(ARRIVED + NS, dispatched(one)), StartUpstream)
    left_ns = NS - 20_000_000
    assert start.connect_timeout_ns == left_ns
    assert one.timer_ns == ARRIVED + NS + left_ns


def test_a_deadline_that_passes_during_the_call_is_a_504() -> None:
    one = called(deadline_ns=ARRIVED + NS)
    assert one.timer_ns is not None
    step = one.handle(one.timer_ns, TimedOut(1))
    assert kinds(step) == [CancelUpstream, Respond, Settle, Record]
    assert step[1].status == 504
    assert last(step).outcome is Outcome.EXPIRED
    assert not last(step).upstream_failed


def test_a_deadline_that_passes_during_a_stream_is_said_in_the_stream() -> None:
    one = called(stream=True, deadline_ns=ARRIVED + NS)
    one.handle(ARRIVED, UpstreamHeaders(1, 200, SSE))
    one.handle(ARRIVED, UpstreamData(1, delta("x")))
    assert one.timer_ns is not None
    step = one.handle(one.timer_ns, TimedOut(1))
    assert kinds(step) == [CancelUpstream, FailStream, Settle, Record]
    assert b"deadline_exceeded" in step[1].data


@pytest.mark.parametrize(
    ("stream", "headers", "waits_s", "reason"),
    [
        (True, None, 60, "upstream_first_byte_timeout"),
        (True, SSE, 60, "upstream_first_byte_timeout"),
        (False, None, 600, "upstream_total_timeout"),
        (False, JSON, 30, "upstream_idle_timeout"),
    ],
)
def test_a_silent_provider_is_given_up(stream: bool, headers: Any, waits_s: int, reason: str) -> None:
    one = called(stream=stream)
    if headers:
        one.handle(ARRIVED, UpstreamHeaders(1, 200, headers))
    assert one.timer_ns == ARRIVED + waits_s * NS
    step = one.handle(one.timer_ns, TimedOut(1))
    assert only(step, Respond).status == 504
    assert (last(step).reason, last(step).upstream_failed) == (reason, True)


def test_a_stream_may_pause_but_not_for_ever() -> None:
    one = streaming()
    one.handle(ARRIVED + 20 * NS, UpstreamData(1, delta("x")))
    assert one.timer_ns == ARRIVED + 50 * NS
    assert last(one.handle(one.timer_ns, TimedOut(1))).reason == "upstream_idle_timeout"


def test_a_provider_that_does_not_close_after_the_end_is_cut_off() -> None:
    one = streaming()
    one.handle(ARRIVED + NS, UpstreamData(1, DONE))
    assert one.timer_ns == ARRIVED + NS + NS // 4
    step = one.handle(one.timer_ns, TimedOut(1))
    assert kinds(step) == [CancelUpstream, EndStream, Settle, Record]
    assert last(step).outcome is Outcome.ANSWERED


@pytest.mark.parametrize(("stream", "told"), [(False, Respond), (True, FailStream)])
def test_a_shutdown_is_said(stream: bool, told: type) -> None:
    one = streaming() if stream else called()
    step = one.handle(ARRIVED, Stop())
    assert kinds(step) == [CancelUpstream, told, Settle, Record]
    assert last(step).reason == "shutting_down"


def test_a_shutdown_while_waiting_is_a_503() -> None:
    step = lifecycle().handle(ARRIVED, Stop())
    assert kinds(step) == [Withdraw, Respond, Record]
    assert step[1].status == 503


# --------------------------------------------------------------------------- calling again


def budget(**fields: Any) -> RetryBudget:
    return RetryBudget(UpstreamRetries(**fields))


def refuse(one: RequestLifecycle, now_ns: int, *headers: tuple[bytes, bytes]) -> list[Any]:
    """The provider says 503."""
    one.handle(now_ns, UpstreamHeaders(1, 503, (*headers, *JSON)))
    return one.handle(now_ns, UpstreamEnded(1))


def test_a_refused_call_gives_its_place_back_and_waits_for_another_one() -> None:
    one = called(retries=budget())
    assert refuse(one, ARRIVED + NS, (b"retry-after", b"2")) == [ProviderRefused(1, 2 * NS), Retry(1, 0, 0)]
    assert (one.state, one.timer_ns) == (State.WAITING, None)
    assert kinds(one.handle(ARRIVED + 3 * NS, dispatched(one))) == [StartUpstream]
    one.handle(ARRIVED + 3 * NS, UpstreamHeaders(1, 200, JSON))
    one.handle(ARRIVED + 3 * NS, UpstreamData(1, ANSWER))
    step = one.handle(ARRIVED + 4 * NS, UpstreamEnded(1))
    assert kinds(step) == [Respond, Settle, Record]
    record = last(step)
    assert (record.outcome, record.upstream_attempts) == (Outcome.ANSWERED, 2)
    assert (record.waited_ns, record.upstream_ns) == (2 * NS, 2 * NS)
    assert (record.input_tokens, record.output_tokens) == (9, 1)


def test_a_broken_call_may_have_been_served_and_is_charged_like_one() -> None:
    one = called(retries=budget())
    assert one.handle(ARRIVED, UpstreamFailed(1, FailureKind.BROKEN)) == [Retry(1, 8, 0)]
    one.handle(ARRIVED, dispatched(one))
    step = one.handle(ARRIVED, UpstreamFailed(1, FailureKind.BROKEN))
    assert only(step, Settle) == Settle(1, 8, 0, ok=False)
    assert (last(step).input_tokens, last(step).upstream_attempts) == (16, 2)


def test_a_call_is_made_so_often_and_no_more() -> None:
    one = called(retries=budget(burst=9))
    assert Retry in kinds(refuse(one, ARRIVED))
    one.handle(ARRIVED, dispatched(one))
    assert kinds(refuse(one, ARRIVED)) == [Respond, ProviderRefused, Settle, Record]


def test_where_the_scheduler_has_no_place_the_first_failure_stands() -> None:
    retries = budget()
    one = called(retries=retries)
    refuse(one, ARRIVED, (b"retry-after", b"9"))
    step = one.handle(ARRIVED, NotRetried(1))
    assert kinds(step) == [Respond, Record], "its reservation is gone already"
    assert (step[0].status, last(step).reason) == (503, "provider_overloaded")
    assert 9 <= int(dict(step[0].headers)[b"retry-after"]) <= 14
    assert retries.left == 3, "a retry that was not made costs nothing"


def headers_of(status: int) -> list[Any]:
    return [UpstreamHeaders(1, status, JSON), UpstreamEnded(1)]


@pytest.mark.parametrize(
    "ending",
    [
        headers_of(500),
        headers_of(400),
        headers_of(401),
        [UpstreamHeaders(1, 200, JSON), UpstreamEnded(1, clean=False)],
        [UpstreamHeaders(1, 200, SSE), UpstreamData(1, delta("x")), UpstreamFailed(1, FailureKind.BROKEN)],
        [UpstreamHeaders(1, 200, JSON), TimedOut(1)],
        [Stop()],
    ],
)
def test_what_was_taken_or_begun_or_has_run_out_of_time_is_not_called_again(ending: list[Any]) -> None:
    one = called(stream=True, retries=budget())
    for event in ending:
        step = one.handle(ARRIVED, event)
    assert Retry not in kinds(step)
    assert last(step).upstream_attempts == 1


def test_a_deadline_before_the_instant_that_the_provider_named_leaves_no_retry() -> None:
    one = called(deadline_ns=ARRIVED + 2 * NS, retries=budget())
    assert last(refuse(one, ARRIVED, (b"retry-after", b"2"))).reason == "provider_overloaded"


@settings(max_examples=60, deadline=None)
@given(
    share=st.floats(0.01, 1),
    burst=st.floats(1, 9),
    wanted=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=20),
)
def test_retries_never_exceed_their_share_of_the_calls_and_the_burst(
    share: float, burst: float, wanted: list[tuple[int, int]]
) -> None:
    retries, calls, made = budget(budget=share, burst=burst), 0, 0
    for fresh, failed in wanted:
        for _ in range(fresh):
            retries.earn()
        calls += fresh
        made += sum(retries.take() for _ in range(failed))
        assert made <= burst + share * calls + 1e-6
        assert not failed or retries.left < 1 or made, "what is left is given out"


def test_a_budget_of_nothing_retries_nothing() -> None:
    assert not budget(budget=0).take()


# --------------------------------------------------------------------------- every order of events

PIECES = [
    delta("one"),
    delta("word " * 200),
    delta("cut")[:11],
    DONE,
    ANSWER,
    b'data: {"error":{"message":"m"}}\n\n',
    b"\x00\xff",
]
READINGS = [
    Reading(tokens=3),
    Reading(tokens=300, usage=Usage(1, 300)),
    Reading(terminal=True, usage=Usage(4, 4)),
    Reading(error=ProviderError("c", "m")),
]
EVENTS = st.one_of(
    st.just("dispatched"),
    st.sampled_from(["refused", "expired", "lease", "not retried"]),
    st.builds(
        UpstreamHeaders,
        st.just(1),
        st.sampled_from([200, 200, 200, 204, 301, 400, 401, 404, 429, 500, 503, 529]),
        st.sampled_from([SSE, JSON, ()]),
    ),
    st.builds(UpstreamData, st.just(1), st.sampled_from(PIECES)),
    st.builds(UpstreamRead, st.just(1), st.sampled_from(READINGS)),
    st.builds(UpstreamEnded, st.just(1), st.booleans()),
    st.builds(UpstreamFailed, st.just(1), st.sampled_from(list(FailureKind))),
    st.just(ClientLeft(1)),
    st.just(TimedOut(1)),
    st.just(Stop()),
)


class Witness:
    """Watches what a lifecycle asks for, and knows what it may ask for."""

    def __init__(self) -> None:
        self.waits = True
        self.holds = False
        self.calls = 0
        self.upstream_open = False
        self.told: list[Any] = []
        self.records: list[Record] = []

    def hear(self, event: Any) -> None:
        """What happened outside."""
        if isinstance(event, Dispatched):
            self.waits, self.holds = False, True
        elif isinstance(event, Refused | NotRetried):
            self.waits = False
        elif isinstance(event, Expired):
            self.waits = self.holds = False
        elif isinstance(event, UpstreamEnded | UpstreamFailed):
            self.upstream_open = False

    def see(self, item: Any) -> None:
        """What the lifecycle wants."""
        assert not self.records, f"{item} after the record"
        match item:
            case StartUpstream():
                assert self.holds
                assert item.connect_timeout_ns > 0
                self.calls += 1
                self.upstream_open = True
            case CancelUpstream():
                assert self.upstream_open
                self.upstream_open = False
            case Settle():
                assert self.holds, "released what was not held"
                self.holds = False
            case Withdraw():
                assert self.holds or self.waits
                self.holds = self.waits = False
            case Retry():
                assert self.holds, "released what was not held"
                assert not self.told, "called again although the client had heard something"
                assert not self.upstream_open
                self.holds, self.waits = False, True
            case Progress() | ProviderAccepted() | ProviderRefused():
                assert self.holds
            case Record():
                self.records.append(item)
            case _:
                self.told.append(item)

    def check_what_the_client_heard(self) -> None:
        kinds_told = [type(item) for item in self.told]
        assert kinds_told.count(Respond) + kinds_told.count(ForwardHeaders) <= 1, "answered twice"
        if Respond in kinds_told:
            assert kinds_told == [Respond]
            assert 200 <= self.told[0].status != 500
        if kinds_told and Respond not in kinds_told:
            assert kinds_told[0] is ForwardHeaders
            assert kinds_told.count(EndStream) + kinds_told.count(FailStream) <= 1
            ends = [kind for kind in kinds_told if kind in (EndStream, FailStream)]
            assert not ends or kinds_told[-1] is ends[0]

    def check_the_end(self) -> None:
        assert len(self.records) == 1, "every request ends with one record"
        assert not self.holds, "leaked a reservation"
        assert not self.waits, "left a ghost in the queue"
        assert not self.upstream_open, "left the provider working for nobody"
        record = self.records[0]
        heard = [type(item) for item in self.told]
        if record.outcome is not Outcome.ABANDONED:
            assert Respond in heard or EndStream in heard or FailStream in heard or record.reason == "ok"
        if FailStream in heard:
            assert record.outcome is not Outcome.ANSWERED
        if EndStream in heard:
            assert record.outcome is Outcome.ANSWERED


@settings(max_examples=400, deadline=None)
@given(
    st.booleans(),
    st.sampled_from([None, 1, 3]),
    st.lists(st.tuples(EVENTS, st.integers(0, 2 * NS)), max_size=12),
    st.sampled_from([None, 1, 3]),
)
def test_no_order_of_events_answers_twice_leaks_or_never_ends(
    stream: bool, deadline_s: int | None, happenings: list[tuple[Any, int]], burst: int | None
) -> None:
    one = lifecycle(
        stream=stream,
        deadline_ns=None if deadline_s is None else ARRIVED + deadline_s * NS,
        retries=None if burst is None else budget(burst=burst),
    )
    witness, now_ns = Witness(), ARRIVED
    for event, later_ns in [*happenings, (ClientLeft(1), 0)]:
        now_ns += later_ns
        event = scheduler_event(one, event)
        if event is None:
            continue
        witness.hear(event)
        for item in one.handle(now_ns, event):
            witness.see(item)
        witness.check_what_the_client_heard()
        assert (one.timer_ns is None) == (one.state in (State.WAITING, State.ENDED))
    assert one.state is State.ENDED
    witness.check_the_end()


def scheduler_event(one: RequestLifecycle, event: Any) -> Any:
    """The scheduler speaks only about what waits (once), or takes back a lease."""
    if not isinstance(event, str):
        return event
    if event == "lease":
        running = one.state not in (State.WAITING, State.ENDED)
        return Expired(one.request, Reason.LEASE_EXPIRED) if running else None
    if one.state is not State.WAITING:
        return None
    if event == "not retried":
        return NotRetried(1) if one._course.calls else None
    return {
        "dispatched": dispatched(one),
        "refused": refused(one),
        "expired": Expired(one.request, Reason.EXPIRED),
    }[event]
