"""Logical requests: which attempts are made, when, and what is recorded of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload import behaviours
from agentload.behaviours import Behaviour
from agentload.client.logical import MAX_ATTEMPTS, AttemptResult, LogicalRequest
from agentload.model import NS, Arrival, Job, Outcome, RequestRecord, Spec

JOB = Job(input_tokens=24, output_tokens=10, declared_output_tokens=48)


def arrival(job: Job = JOB, seq: int = 7) -> Arrival:
    return Arrival(seq=seq, tenant="quiet", service_class="standard", phase="calm", due_ns=NS, job=job)


def behaviour(kind: str, **params: object) -> Behaviour:
    return behaviours.make(Spec(kind=kind, params=params))


def rejected(sent_ns: int, retry_after_s: float | None = 2.0) -> AttemptResult:
    return AttemptResult(
        outcome=Outcome.REJECTED, sent_ns=sent_ns, status=429, retry_after="2", retry_after_s=retry_after_s
    )


@dataclass
class Played:
    """All attempts of one request."""

    records: list[RequestRecord] = field(default_factory=list[RequestRecord])
    starts: list[int] = field(default_factory=list[int])


def play(request: LogicalRequest, outcomes: list[AttemptResult], took_ns: int = NS // 10) -> Played:
    """Feeds one result after another, each attempt beginning when due; stops when the request is over."""
    played, now_ns = Played(), request.arrival.due_ns
    for result in outcomes:
        start = request.start(now_ns)
        assert start.number == len(played.records)
        played.starts.append(start.due_ns)
        now_ns += took_ns
        record, next_due_ns = request.ended(now_ns, result)
        played.records.append(record)
        if next_due_ns is None:
            assert record.final
            break
        assert not record.final
        now_ns = next_due_ns
    return played


def test_an_answer_ends_it() -> None:
    request = LogicalRequest(arrival(), behaviour("hammer"), 1)
    start = request.start(NS + 5)
    assert (start.number, start.due_ns, start.timeout_at_ns) == (0, NS, 61 * NS + 5)
    result = AttemptResult(
        outcome=Outcome.ANSWERED,
        sent_ns=NS + 5,
        status=200,
        first_token_ns=NS + 50,
        last_token_ns=NS + 90,
        output_tokens=10,
        server_queue_ns=3,
        own_answer=True,
        worker=2,
        connection_reused=True,
    )
    record, next_due_ns = request.ended(NS + 100, result)
    assert next_due_ns is None
    assert record == RequestRecord(
        seq=7,
        attempt=0,
        tenant="quiet",
        service_class="standard",
        phase="calm",
        due_ns=NS,
        sent_ns=NS + 5,
        ended_ns=NS + 100,
        outcome=Outcome.ANSWERED,
        final=True,
        first_due_ns=NS,
        first_token_ns=NS + 50,
        last_token_ns=NS + 90,
        status=200,
        input_tokens=24,
        declared_output_tokens=48,
        output_tokens=10,
        planned_output_tokens=10,
        server_queue_ns=3,
        own_answer=True,
        worker=2,
        connection_reused=True,
    )


def test_a_retry_is_due_when_it_was_promised_and_latency_counts_from_the_first() -> None:
    request = LogicalRequest(arrival(), behaviour("obeys"), 1)
    answered = AttemptResult(outcome=Outcome.ANSWERED, sent_ns=0, status=200)
    played = play(request, [rejected(NS), rejected(NS), answered])
    assert played.starts == [NS, NS + 2_100_000_000, NS + 4_200_000_000]
    assert [r.attempt for r in played.records] == [0, 1, 2]
    assert [r.final for r in played.records] == [False, False, True]
    assert {r.first_due_ns for r in played.records} == {NS}
    assert [r.due_ns for r in played.records] == played.starts
    assert played.records[0].retry_after == "2"


def test_patience_begins_when_the_attempt_is_sent() -> None:
    request = LogicalRequest(arrival(), behaviour("obeys", timeout_s=2), 1)
    assert request.start(NS).timeout_at_ns == 3 * NS
    _, due_ns = request.ended(2 * NS, rejected(NS))
    assert due_ns == 4 * NS
    assert request.start(due_ns + 30).timeout_at_ns == 6 * NS + 30


def test_behaviours_read_the_lenient_value_and_records_the_strict_one() -> None:
    request = LogicalRequest(arrival(), behaviour("obeys"), 1)
    request.start(NS)
    fraction = AttemptResult(
        outcome=Outcome.REJECTED, sent_ns=NS, status=429, retry_after="0.5", retry_after_hint_s=0.5
    )
    record, due_ns = request.ended(2 * NS, fraction)
    assert record.retry_after_s is None
    assert due_ns == 2.5 * NS


def test_jitter_is_the_requests_own() -> None:
    def due(seed: int, seq: int) -> int | None:
        request = LogicalRequest(arrival(seq=seq), behaviour("openai-sdk"), seed)
        request.start(NS)
        return request.ended(2 * NS, rejected(NS, retry_after_s=None))[1]

    assert due(1, 7) == due(1, 7)
    assert len({due(1, 7), due(1, 8), due(2, 7)}) == 3
    expected = 0.5 * (1 - 0.25 * Random("1/quiet/7/retry").random())
    assert due(1, 7) == 2 * NS + round(expected * NS)


@pytest.mark.parametrize("outcome", [Outcome.UNFINISHED, Outcome.UNSENT])
def test_what_the_run_or_the_generator_ended_is_not_retried(outcome: Outcome) -> None:
    request = LogicalRequest(arrival(), behaviour("hammer"), 1)
    request.start(NS)
    record, due_ns = request.ended(2 * NS, AttemptResult(outcome=outcome, sent_ns=NS))
    assert due_ns is None
    assert record.final


def test_no_retry_is_due_after_the_run_or_the_deadline() -> None:
    late = Job(input_tokens=24, output_tokens=10, declared_output_tokens=48, deadline_ns=3 * NS)
    for job, horizon_ns, expected in (
        (JOB, None, 4 * NS),
        (JOB, 4 * NS, None),
        (JOB, 4 * NS + 1, 4 * NS),
        (late, None, None),
    ):
        request = LogicalRequest(arrival(job), behaviour("obeys"), 1, horizon_ns)
        request.start(NS)
        record, due_ns = request.ended(2 * NS, rejected(NS))
        assert due_ns == expected
        assert record.final is (expected is None)


def test_a_begun_stream_is_no_sdks_to_retry() -> None:
    stream = Job(input_tokens=24, output_tokens=10, declared_output_tokens=48, stream=True)
    cut = AttemptResult(outcome=Outcome.TRUNCATED, sent_ns=NS, status=200)
    for job, retried in ((stream, False), (JOB, True)):
        request = LogicalRequest(arrival(job), behaviour("openai-sdk"), 1)
        request.start(NS)
        assert (request.ended(2 * NS, cut)[1] is not None) is retried


def test_a_promise_of_a_million_years_is_a_no() -> None:
    request = LogicalRequest(arrival(), behaviour("obeys"), 1)
    request.start(NS)
    assert request.ended(2 * NS, rejected(NS, retry_after_s=1e15))[1] is None


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(behaviours.SEAM.names()),
    outcomes=st.lists(st.sampled_from(list(Outcome)), min_size=300, max_size=300),
    retry_after_s=st.one_of(st.none(), st.floats(-10, 200)),
    seed=st.integers(0, 100),
)
def test_whatever_happens_it_ends_once_in_order(
    kind: str, outcomes: list[Outcome], retry_after_s: float | None, seed: int
) -> None:
    request = LogicalRequest(arrival(), behaviour(kind), seed, horizon_ns=3600 * NS)
    results = [
        AttemptResult(
            outcome=o, sent_ns=NS, status=429 if o is Outcome.REJECTED else 0, retry_after_s=retry_after_s
        )
        for o in outcomes
    ]
    records = play(request, results, took_ns=0).records
    assert len(records) <= MAX_ATTEMPTS
    assert [r.final for r in records] == [False] * (len(records) - 1) + [True]
    assert [r.attempt for r in records] == list(range(len(records)))
    assert all(a.ended_ns <= b.due_ns < 3600 * NS for a, b in pairwise(records))
    assert Outcome.ANSWERED not in {r.outcome for r in records[:-1]}


@pytest.mark.parametrize(("stream", "again"), [(None, False), (False, True)])
def test_an_answer_of_an_api_without_streams_is_none_whatever_was_planned(
    stream: bool | None, again: bool
) -> None:
    request = LogicalRequest(arrival(msgspec.structs.replace(JOB, stream=True)), behaviour("openai-sdk"), 1)
    request.start(NS)
    result = AttemptResult(outcome=Outcome.TRUNCATED, sent_ns=NS, status=200, stream=stream)
    record, next_due_ns = request.ended(2 * NS, result)
    assert record.stream is (stream is None)
    assert (next_due_ns is not None) is again
