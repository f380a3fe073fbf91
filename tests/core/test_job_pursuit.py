"""A client of durable jobs: what it sends, when, with which key, and what it remembers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.client.job_pursuit import JobAsk, JobPursuit, JobReply, Kind
from agentload.client.job_writer import JobWriter, job_body
from agentload.gateway.jobs.model import JobBody
from agentload.model import NS, Arrival, Job, JobOrder, JobRecord, JobStep, Outcome, RequestRecord, ToolUse
from agentload.targets import bundled
from fake_provider import marker

ORDER = JobOrder(
    steps=(
        JobStep(tool=ToolUse(name="save", seconds=0.2, side_effect=True, fail_first=2)),
        JobStep(chat=True),
    ),
    deadline_s=10,
    max_attempts=3,
    poll_s=0.5,
    grace_s=2,
)
HORIZON_NS = 60 * NS


def arrival(seq: int = 7) -> Arrival:
    job = Job(input_tokens=24, output_tokens=10, declared_output_tokens=48, stream=True)
    return Arrival(seq=seq, tenant="a", service_class="standard", phase="load", due_ns=NS, job=job)


def shown(state: str, **more: Any) -> bytes:
    return json.dumps({"id": "job_1", "state": state, "position": 3, "eta_s": 4.5} | more).encode()


class Chase:
    """A pursuit and the time."""

    def __init__(self, horizon_ns: int = HORIZON_NS) -> None:
        self.pursuit = JobPursuit(arrival(), ORDER, "k", horizon_ns)
        self.now_ns = 0
        self.asks: list[JobAsk] = []
        self.records: list[RequestRecord] = []

    @property
    def job(self) -> JobRecord:
        return self.pursuit.record()

    def answer(self, status: int, body: bytes = b"", took_s: float = 0.01, **more: Any) -> JobAsk:
        """Send what is next and answer it; what was asked."""
        ask = self.pursuit.next_ask()
        assert ask is not None
        self.asks.append(ask)
        self.now_ns = max(self.now_ns, ask.due_ns)
        sent_ns, self.now_ns = self.now_ns, self.now_ns + round(took_s * NS)
        record = self.pursuit.heard(
            self.now_ns, ask, JobReply(sent_ns=sent_ns, status=status, body=body, **more)
        )
        assert (record is not None) == (ask.kind is Kind.POST)
        self.records += [record] if record is not None else []
        return ask

    @property
    def over(self) -> bool:
        return self.pursuit.next_ask() is None


def test_an_accepted_job_is_asked_for_until_it_has_ended_and_once_more() -> None:
    chase = Chase()
    assert chase.answer(202, shown("queued")).due_ns == NS
    poll = chase.answer(200, shown("running", position=0, eta_s=1.0))
    assert (poll.kind, poll.job_id, poll.due_ns) == (Kind.POLL, "job_1", NS + 510_000_000)
    result = {"step": 0, "kind": "tool", "output": {"call": 12}}
    chase.answer(200, shown("completed", results=[result], deliveries=2, ended_ms=5))
    confirm = chase.answer(200, shown("completed", ended_ms=5))
    assert confirm.due_ns - (chase.job.ended_ns or 0) == 2 * NS
    assert chase.over
    job = chase.job
    assert (job.id, job.state, job.posts, job.polls, job.deliveries) == ("job_1", "completed", 1, 3, 2)
    assert (job.eta_s, job.position, job.told_ns) == (4.5, 3, job.accepted_ns)
    assert job.winners == {"0": 12}
    assert not job.relapsed
    assert [(r.outcome, r.final, r.status) for r in chase.records] == [(Outcome.ANSWERED, True, 202)]


@pytest.mark.parametrize("again", [{"state": "running"}, {"state": "completed", "ended_ms": 6}])
def test_an_end_that_does_not_last_is_noticed(again: dict[str, Any]) -> None:
    chase = Chase()
    chase.answer(202, shown("queued"))
    chase.answer(200, shown("completed", ended_ms=5))
    chase.answer(200, shown(**again))
    assert chase.job.relapsed
    assert chase.over


def test_a_post_without_an_answer_is_made_again_later_and_later() -> None:
    chase = Chase()
    for _ in range(4):
        chase.answer(0, reason="connection-reset")
    chase.answer(202, shown("queued"))
    waits = [
        later.due_ns - earlier.due_ns for earlier, later in zip(chase.asks, chase.asks[1:], strict=False)
    ]
    assert waits == [260_000_000, 510_000_000, 1_010_000_000, 1_010_000_000]
    assert [record.final for record in chase.records] == [False, False, False, False, True]
    assert [record.attempt for record in chase.records] == [0, 1, 2, 3, 4]
    assert chase.job.posts == 5


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refusal_is_obeyed_and_one_for_good_is_final(status: int) -> None:
    chase = Chase()
    chase.answer(status, retry_after_s=3.0, took_s=0)
    assert chase.answer(409).due_ns == 4 * NS
    assert chase.over
    assert chase.job.accepted_ns is None
    assert [record.outcome for record in chase.records] == [Outcome.REJECTED, Outcome.FAILED]


def test_a_gateway_that_is_away_is_asked_until_the_run_ends() -> None:
    chase = Chase()
    chase.answer(202, shown("queued"))
    while not chase.over:
        chase.answer(0, reason="connection-refused")
    job = chase.job
    assert (job.state, job.answered_ns) == (None, None)
    assert job.gave_up_ns == chase.now_ns
    assert chase.now_ns >= HORIZON_NS - NS
    assert set(job.poll_faults) == {"connection-refused"}


@pytest.mark.parametrize(("status", "body"), [(404, b"{}"), (200, shown("running"))])
def test_a_job_without_an_end_is_given_up_when_the_gateway_says_so_after_the_grace(
    status: int, body: bytes
) -> None:
    chase = Chase()
    chase.answer(202, shown("queued"))
    while chase.now_ns < 15 * NS:
        chase.answer(0, reason="connection-refused")
    back_ns = chase.now_ns
    while not chase.over:
        chase.answer(status, body)
    assert 2 * NS <= chase.now_ns - back_ns < 4 * NS, "the grace begins when it is back"
    assert chase.job.gave_up_ns == chase.job.answered_ns == chase.now_ns


def test_nothing_is_posted_after_the_deadline() -> None:
    chase = Chase()
    while not chase.over:
        chase.answer(503, retry_after_s=1.0)
    assert 10 * NS <= chase.asks[-1].due_ns < 11 * NS
    assert chase.records[-1].final


def test_a_lost_job_is_remembered_as_such() -> None:
    chase = Chase()
    chase.answer(202, shown("queued"))
    chase.answer(404, b"{}")
    chase.answer(200, b"no json")
    assert chase.job.poll_faults == {"404": 1, "200": 1}
    assert not chase.over


def test_a_run_that_ends_leaves_no_question_open() -> None:
    chase = Chase()
    chase.answer(202, shown("queued"))
    chase.pursuit.stop(5 * NS)
    assert chase.over
    assert chase.job.gave_up_ns == 5 * NS


def test_what_the_generator_could_not_send_is_no_post() -> None:
    chase = Chase()
    chase.answer(0, outcome=Outcome.UNSENT)
    assert chase.over
    assert (chase.job.posts, chase.job.sent_ns) == (0, None)
    assert chase.records[0].outcome is Outcome.UNSENT


STATUSES = st.sampled_from([0, 200, 202, 400, 404, 409, 429, 500, 503])
STATES = st.sampled_from(["queued", "deferred", "running", "completed", "failed", "expired", "cancelled"])


@given(st.lists(st.tuples(STATUSES, STATES, st.floats(0, 3)), max_size=60), st.integers(1, 60))
def test_whatever_is_answered_it_ends_and_never_asks_too_late(
    answers: list[tuple[int, str, float]], horizon_s: int
) -> None:
    chase = Chase(horizon_s * NS)
    end_ns = horizon_s * NS
    for status, state, took_s in answers:
        if chase.over:
            break
        ask = chase.answer(status, shown(state), took_s)
        assert ask.due_ns < end_ns or ask.due_ns == NS
        assert (ask.kind is Kind.POLL) == (chase.job.accepted_ns is not None and len(chase.asks) > 1) or (
            ask.kind is Kind.POST
        )
    while not chase.over:
        chase.answer(0)
    job = chase.job
    assert job.posts == len(chase.records)
    assert job.polls == len(chase.asks) - len(chase.records)
    if job.state is not None:
        assert job.ended_ns is not None


# --------------------------------------------------------------------------- what is sent


def test_the_body_is_a_job_as_the_gateway_reads_it_and_always_the_same() -> None:
    body = job_body(arrival(), ORDER, 9, 4, "m")
    assert body == job_body(arrival(), ORDER, 9, 4, "m")
    job = msgspec.json.decode(body, type=JobBody)
    tool, chat = job.steps[0].tool, job.steps[1].chat
    assert tool is not None
    assert chat is not None
    assert msgspec.json.decode(tool.payload) == {"ref": "7:0", "fail_first": 2}
    assert "stream" not in chat
    found = marker.decode(msgspec.json.decode(chat["messages"])[-1]["content"])
    assert found is not None
    assert (found.run, found.tenant, found.seq) == (9, 4, 7)
    assert (job.deadline_ms, job.max_attempts, job.service_class) == (None, 3, "standard")


def test_both_requests_say_who_asks() -> None:
    writer = JobWriter(bundled("http://127.0.0.1:8080"), 9)
    post, poll = writer.post(arrival(), ORDER, 4, 3 * NS), writer.poll(arrival(), "job_1")
    head, _, body = post.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/jobs HTTP/1.1\r\n")
    assert b"Idempotency-Key: 0009-7\r\n" in post
    assert b"X-Deadline-Ms: 8000\r\n" in post
    assert b"Content-Length: %d\r\n" % len(body) in post
    assert poll.startswith(b"GET /v1/jobs/job_1 HTTP/1.1\r\n")
    assert poll.endswith(b"\r\n\r\n")
    assert b"X-Tenant: a\r\n" in post
    assert b"X-Tenant: a\r\n" in poll
