"""An attempt whose answer is asked for: what is sent when, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.client.logical import AttemptResult, AttemptStart
from agentload.client.polling import CANCEL_NS, MOST_SILENT, Ask, Heard, Kind, Polling
from agentload.client.wire import Ending, ReplyReader
from agentload.model import NS, Outcome
from agentload.targets import Target
from fake_provider.marker import Marker, ack
from fake_provider.words import filler

SEQ = 77
TEXT = ack(Marker(run=1, tenant=3, seq=SEQ, attempt=0, output_tokens=12)) + filler(6)
TARGET = Target(name="t", host="gw", port=8080, path="/v1/jobs", flavour="jobs", options={"poll_s": 0.5})


def with_names(**names: Any) -> Target:
    return Target(
        name="t", host="gw", port=8080, path="/x", flavour="jobs", options={"poll_s": 0.5, "jobs": names}
    )


def responses(*, cancels: bool) -> Target:
    options = {"background": True, "cancels": cancels}
    return Target(
        name="t", host="gw", port=80, path="/v1/responses", flavour="openai-responses", options=options
    )


JSON = (b"content-type", b"application/json")
ACCEPTED = {"id": "job_1", "state": "queued"}
RESULT = {"choices": [{"message": {"content": TEXT}}], "usage": {"prompt_tokens": 24, "completion_tokens": 9}}
DONE = {"id": "job_1", "state": "completed", "result": RESULT}
OPEN = {"id": "job_1", "state": "running"}


class Life:
    """One attempt and its clock."""

    def __init__(self, target: Target = TARGET, leave_s: float | None = None) -> None:
        self.target = target
        self.now_ns = 5 * NS
        start = AttemptStart(
            number=0,
            due_ns=self.now_ns,
            timeout_at_ns=self.now_ns + 30 * NS,
            leave_at_ns=None if leave_s is None else self.now_ns + round(leave_s * NS),
        )
        self.polling = Polling(target, start, self.now_ns)

    def ask(self) -> Ask:
        ask = self.polling.next_ask()
        assert ask is not None
        assert ask.due_ns >= self.now_ns
        self.now_ns = ask.due_ns
        return ask

    def answer(
        self,
        body: object = None,
        status: int = 200,
        *fields: tuple[bytes, bytes],
        ending: Ending = Ending.COMPLETE,
        error: str | None = None,
        after_s: float = 0.0,
    ) -> Ask:
        """The next thing is asked, and this comes of it."""
        ask = self.ask()
        self.now_ns += round(after_s * NS)
        reader = ReplyReader(False, SEQ, None, self.target.api)
        if ending is Ending.COMPLETE:
            reader.head(status, [JSON, *fields], 0.0)
            reader.feed(body if isinstance(body, bytes) else json.dumps(body).encode(), self.now_ns)
        heard = Heard(reader=reader, ending=ending, error=error, sent_ns=ask.due_ns + 1, reused=True)
        self.polling.heard(self.now_ns, ask, heard)
        return ask

    def result(self) -> AttemptResult:
        assert self.polling.next_ask() is None, "it is not over"
        return self.polling.result(worker=3)


def ending(result: AttemptResult) -> tuple[Outcome, int, str | None]:
    return result.outcome, result.status, result.reason


def test_it_is_asked_after_until_it_is_done() -> None:
    life = Life()
    begun = life.answer(ACCEPTED, 202)
    assert (begun.kind, begun.due_ns, begun.timeout_at_ns) == (Kind.BEGIN, 5 * NS, 35 * NS)
    first = life.answer(OPEN)
    assert (first.kind, first.path, first.due_ns) == (Kind.POLL, "/v1/jobs/job_1", 5.5 * NS)
    assert life.answer(OPEN).due_ns == 6 * NS
    life.answer(DONE)
    result = life.result()
    assert ending(result) == (Outcome.ANSWERED, 200, None)
    assert (result.own_answer, result.input_tokens, result.output_tokens) == (True, 24, 9)
    assert (result.sent_ns, result.connection_reused, result.worker) == (5 * NS + 1, True, 3)
    assert (result.stream, result.first_token_ns, life.polling.polls) == (False, None, 3)


def test_one_that_is_done_at_once_is_not_asked_after() -> None:
    life = Life()
    life.answer(DONE, 201)
    assert ending(life.result()) == (Outcome.ANSWERED, 200, None)


@pytest.mark.parametrize("status", [402, 413, 429, 503, 529])
def test_a_request_that_is_turned_away_is_refused_as_any_other(status: int) -> None:
    life = Life()
    life.answer({"error": {"code": "full"}}, status, (b"retry-after", b"7"))
    result = life.result()
    assert ending(result) == (Outcome.REJECTED, status, "full")
    assert (result.retry_after, result.retry_after_s) == ("7", 7.0)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("failed", Outcome.FAILED), ("cancelled", Outcome.FAILED), ("expired", Outcome.EXPIRED)],
)
def test_an_end_without_a_result_keeps_the_status_of_its_acceptance(state: str, expected: Outcome) -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    life.answer({"id": "job_1", "state": state, "reason": "out_of_luck"})
    assert ending(life.result()) == (expected, 202, "out_of_luck")


def test_somebody_elses_result_is_a_failure() -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    other = ack(Marker(run=1, tenant=3, seq=SEQ + 1, attempt=0, output_tokens=12)) + filler(6)
    life.answer({**DONE, "result": {"choices": [{"message": {"content": other}}]}})
    result = life.result()
    assert (result.outcome, result.own_answer) == (Outcome.FAILED, False)


def test_a_result_without_text_is_a_failure() -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    life.answer({"id": "job_1", "state": "completed"})
    assert ending(life.result()) == (Outcome.FAILED, 200, "answer-without-text")


# ------------------------------------------------------------------------------------- lost questions


def test_a_question_that_fails_is_asked_again_later_each_time() -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    life.answer(status=503)
    life.answer(ending=Ending.CUT, error="connection-refused")
    life.answer(b"{", 200)
    life.answer({"id": "job_1"}, 200)
    assert life.ask().due_ns == round((5.5 + 1 + 2 + 2 + 2) * NS)
    life.answer(OPEN)
    assert life.answer(DONE).due_ns == life.now_ns
    assert life.result().outcome is Outcome.ANSWERED


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": 503}, "poll-503"),
        ({"body": b"{"}, "poll-without-state"),
        ({"body": {"id": "job_1"}}, "poll-without-state"),
        ({"ending": Ending.CUT, "error": "connection-refused"}, "poll-connection-refused"),
        ({"ending": Ending.UNSENT, "error": "out-of-local-resources"}, "poll-out-of-local-resources"),
    ],
)
def test_after_too_many_it_has_failed_and_is_named(answer: dict[str, Any], why: str) -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    for _ in range(MOST_SILENT):
        life.answer(**answer)
    assert ending(life.result()) == (Outcome.FAILED, 202, why)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410])
def test_what_asking_again_will_not_change_is_the_end(status: int) -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    life.answer(status=status)
    assert ending(life.result()) == (Outcome.FAILED, 202, f"poll-{status}")


def test_a_question_is_not_waited_for_as_long_as_the_client_would_wait() -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    ask = life.answer(ending=Ending.LEFT, error="timeout", after_s=10)
    assert ask.timeout_at_ns == ask.due_ns + 10 * NS
    life.answer(DONE)
    assert life.result().outcome is Outcome.ANSWERED


@pytest.mark.parametrize(("told", "wait_s"), [(b"3", 3.0), (b"0", 0.5), (b"x", 0.5), (b"100", None)])
def test_who_is_told_when_to_ask_again_waits_so_long(told: bytes, wait_s: float | None) -> None:
    life = Life()
    life.answer(ACCEPTED, 202, (b"Retry-After", told))
    ask = life.ask()
    assert ask.due_ns == (35 * NS if wait_s is None else 5 * NS + round(wait_s * NS))
    assert ask.kind is (Kind.LEAVE if wait_s is None else Kind.POLL)


# ---------------------------------------------------------------------------------------- departures


def test_a_client_that_has_waited_long_enough_abandons_it() -> None:
    life = Life()
    life.answer(ACCEPTED, 202)
    while (ask := life.ask()).kind is Kind.POLL:
        life.answer(OPEN)
    assert (ask.kind, ask.due_ns) == (Kind.LEAVE, 35 * NS)
    life.polling.left()
    assert ending(called_off(life)) == (Outcome.ABANDONED, 202, "timeout")


def called_off(life: Life, status: int = 204, ending: Ending = Ending.COMPLETE) -> AttemptResult:
    """After the client has left: the request that calls its work off, and this comes of it."""
    ask = life.answer(b"", status, ending=ending)
    assert (ask.kind, ask.due_ns, ask.method, ask.path) == (
        Kind.CANCEL,
        life.polling.until_ns,
        "DELETE",
        "/v1/jobs/job_1",
    )
    return life.result()


def test_a_client_that_leaves_on_purpose_calls_its_work_off() -> None:
    life = Life(leave_s=0.7)
    life.answer(ACCEPTED, 202)
    life.answer(OPEN)
    assert life.ask().kind is Kind.LEAVE
    life.polling.left()
    result = called_off(life)
    assert ending(result) == (Outcome.ABANDONED, 202, "left")
    assert (result.called_off, result.silent, life.polling.left_ns) == (204, False, life.polling.until_ns)


def test_who_leaves_during_a_question_or_the_request_has_left() -> None:
    asking, begun = Life(leave_s=0.7), Life(leave_s=0.7)
    asking.answer(ACCEPTED, 202)
    asking.answer(ending=Ending.LEFT, error="timeout")
    result = called_off(asking, ending=Ending.CUT)
    assert ending(result) == (Outcome.ABANDONED, 202, "left")
    assert (result.called_off, result.silent) == (0, False)
    begun.answer(ending=Ending.LEFT, error="timeout")
    result = begun.result()
    assert ending(result) == (Outcome.ABANDONED, 0, "timeout")
    assert (result.called_off, result.silent) == (None, True), "nobody has told it the work's name"


@pytest.mark.parametrize(
    ("target", "request_line"),
    [
        (with_names(cancel="POST /x/{id}/abort"), ("POST", "/x/job_1/abort")),
        (with_names(cancel=None, state="status"), None),
        (responses(cancels=True), ("POST", "/v1/responses/job_1/cancel")),
        (responses(cancels=False), None),
    ],
)
def test_how_work_is_called_off_is_the_flavours(target: Target, request_line: tuple[str, str] | None) -> None:
    life = Life(target, leave_s=0.3)
    life.answer({"id": "job_1", "state": "open", "status": "queued"}, 202)
    assert life.ask().kind is Kind.LEAVE
    life.polling.left()
    ask = life.polling.next_ask()
    assert (None if ask is None else (ask.method, ask.path)) == request_line
    assert target.api.can_call_off is (request_line is not None)
    if ask is None:
        assert life.result().silent


def test_a_run_that_ends_while_work_is_called_off_changes_nothing() -> None:
    life = Life(leave_s=0.7)
    life.answer(ACCEPTED, 202)
    life.ask()
    life.polling.left()
    life.polling.stopped()
    assert life.result().outcome is Outcome.ABANDONED


@pytest.mark.parametrize("during", ["request", "wait", "question"])
def test_what_the_end_of_the_run_interrupts_is_unfinished(during: str) -> None:
    life = Life()
    if during == "request":
        life.answer(ending=Ending.OPEN)
    else:
        life.answer(ACCEPTED, 202)
        life.polling.stopped() if during == "wait" else life.answer(ending=Ending.OPEN)
    assert life.result().outcome is Outcome.UNFINISHED


@pytest.mark.parametrize("kind", [Ending.CUT, Ending.UNSENT])
def test_a_request_that_never_got_through(kind: Ending) -> None:
    life = Life()
    life.answer(ending=kind, error="why")
    expected = Outcome.UNSENT if kind is Ending.UNSENT else Outcome.FAILED
    assert ending(life.result()) == (expected, 0, "why")


# ------------------------------------------------------------------------------------ where to ask


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (b"/v1/jobs/7?x=1", "/v1/jobs/7?x=1"),
        (b"http://gw:8080/v1/jobs/7", "/v1/jobs/7"),
        (b"http://GW:8080/v1/jobs/7", "/v1/jobs/7"),
        (b"http://elsewhere/v1/jobs/7", None),
        (b"https://gw:8080/v1/jobs/7", None),
        (b"//elsewhere/x", None),
        (b"jobs/7", None),
        (b"/a b", None),
        (b"/a/../../b", None),
        (b"/a\tb", None),
        (b"http://[", None),
        (b"", None),
    ],
)
def test_without_an_id_the_location_says_if_it_is_at_the_same_gateway(
    location: bytes, path: str | None
) -> None:
    life = Life()
    life.answer({"state": "queued"}, 202, (b"Location", location))
    if path is None:
        assert ending(life.result()) == (Outcome.FAILED, 202, "answer-without-id")
    else:
        assert life.ask().path == path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b c\r\nX: y", "/v1/jobs/a%2Fb%20c%0D%0AX%3A%20y"),
        (17, "/v1/jobs/17"),
        ("..", None),
        ("", None),
        ("x" * 257, None),
    ],
)
def test_an_id_cannot_lead_elsewhere(name: object, path: str | None) -> None:
    life = Life()
    life.answer({"id": name, "state": "queued"}, 202)
    if path is None:
        assert life.result().reason == "answer-without-id"
    else:
        assert life.ask().path == path


answers = st.sampled_from([OPEN, DONE, ACCEPTED, {}, {"id": "job_1", "state": "failed"}]) | st.binary(
    max_size=9
)
steps = st.tuples(
    answers,
    st.sampled_from([200, 202, 404, 429, 500, 503]),
    st.sampled_from([Ending.COMPLETE, Ending.COMPLETE, Ending.CUT, Ending.LEFT, Ending.UNSENT]),
    st.floats(0, 12),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, min_size=1, max_size=40), st.none() | st.floats(0.1, 40))
def test_whatever_comes_it_ends_once_in_time_and_is_named(
    story: list[tuple[object, int, Ending, float]], leave_s: float | None
) -> None:
    life, asked = Life(leave_s=leave_s), 0
    while (ask := life.polling.next_ask()) is not None:
        body, status, how, after_s = story[asked % len(story)]
        asked += 1
        life.ask()
        assert ask.due_ns <= life.polling.until_ns
        cancels = ask.kind is Kind.CANCEL
        assert ask.due_ns <= ask.timeout_at_ns <= life.polling.until_ns + (CANCEL_NS if cancels else 0)
        if ask.kind is Kind.LEAVE:
            life.polling.left()
        else:
            took_s = min(after_s, (ask.timeout_at_ns - ask.due_ns) / NS)
            life.answer(
                body, status, ending=how, error=None if how is Ending.COMPLETE else "x", after_s=took_s
            )
        assert asked < 500
    result = life.polling.result()
    assert result.outcome is not Outcome.UNFINISHED
    assert (result.called_off is not None or result.silent) is (result.outcome is Outcome.ABANDONED)
    assert result.outcome is Outcome.ANSWERED or result.reason or result.status not in (0, 200, 202)
