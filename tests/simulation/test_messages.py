"""Numbers instead of text: every count must be what the text would have given."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentload import targets
from agentload.client.logical import AttemptStart
from agentload.client.wire import Ending, ReplyReader, chat_body, idempotency_key, marker_of
from agentload.drivers.simulated.answer import AnswerReader
from agentload.drivers.simulated.messages import Frame, Submitter
from agentload.gateway.answers import of_failure, server_timing
from agentload.gateway.envelope import EnvelopeReader
from agentload.gateway.failures import Failure
from agentload.gateway.settings import GatewaySettings
from agentload.model import Arrival, Job, Outcome
from agentload.scheduler.config import GatewayConfig
from fake_provider.call import CallRequest
from fake_provider.marker import Marker, message, message_chars
from fake_provider.openai import OpenAIChat

TARGET = targets.bundled("http://127.0.0.1:1")
PLACES = {"a": 0, "b": 500}

markers = st.builds(
    Marker,
    run=st.integers(0, 65_535),
    tenant=st.integers(0, 65_535),
    seq=st.integers(0, 2**24 - 1),
    attempt=st.integers(0, 255),
    output_tokens=st.integers(0, 65_535),
)
jobs = st.builds(
    Job,
    input_tokens=st.integers(13, 400),
    output_tokens=st.integers(1, 500),
    declared_output_tokens=st.none() | st.integers(1, 4_000),
    stream=st.booleans(),
    workflow=st.sampled_from(["chat", "agent-run"]),
    tool_calls=st.integers(0, 3),
    tool_ns=st.integers(0, 10**12),
    deadline_ns=st.none() | st.integers(1, 10**11),
)
arrivals = st.builds(
    Arrival,
    seq=st.integers(0, 2**25),
    tenant=st.sampled_from(sorted(PLACES)),
    service_class=st.just("standard"),
    phase=st.just("load"),
    due_ns=st.integers(0, 10**11),
    job=jobs,
    run=st.sampled_from([None, "a-run-3"]),
    model=st.sampled_from([None, "large"]),
)


@given(markers, st.integers(0, 3_000))
def test_the_length_of_a_message_needs_no_message(marker: Marker, input_tokens: int) -> None:
    assert message_chars(marker, input_tokens) == len(message(marker, input_tokens))


@given(arrivals, st.integers(0, 300), st.integers(0, 10**10))
def test_gateway_and_provider_read_what_they_would_read_from_the_wire(
    arrival: Arrival, attempt: int, late_ns: int
) -> None:
    sent_ns, arrived_ns = arrival.due_ns + late_ns, arrival.due_ns + late_ns + 100_000
    start = AttemptStart(
        number=attempt,
        due_ns=0,
        timeout_at_ns=1,
        said_number=0 if attempt % 2 else None,
        sends_key=attempt > 9,
    )
    submission = Submitter(7, PLACES).write(arrival, start, sent_ns)
    marker = marker_of(7, PLACES[arrival.tenant], arrival, attempt)
    body = chat_body(arrival.job, marker, arrival.model or TARGET.model)
    named = TARGET.headers(arrival, 0 if attempt % 2 else marker.attempt, sent_ns)
    if start.sends_key:
        named.append(("Idempotency-Key", idempotency_key(7, arrival)))
    headers = tuple((name.lower().encode(), value.encode()) for name, value in named)
    real = EnvelopeReader(GatewayConfig(), GatewaySettings(), {}).read(arrived_ns, 1, headers, body)
    simulated = submission.envelope(arrived_ns, 1)
    assert simulated.request == real.request
    assert simulated.call.stream == real.call.stream
    assert not real.call.hide_usage
    read: CallRequest = OpenAIChat().parse({b"content-type": b"application/json"}, body)
    assert submission.call_request() == read


@given(st.integers(0, 2**24 - 1), st.integers(0, 65_535), st.booleans())
def test_frames_survive_the_trip(seq: int, tokens: int, done: bool) -> None:
    frame = Frame(seq, tokens, 3, tokens, done)
    assert Frame.decode(frame.encode()) == frame
    assert Frame.decode(frame.encode()[:-1]) is None


@given(
    status=st.sampled_from([400, 402, 413, 429, 500, 503, 504]),
    retry_after=st.none()
    | st.sampled_from(["0", "7", "007", "-1", "1.5", "soon", "Thu, 01 Jan 2026 00:00:09 GMT"]),
    queue_ns=st.none() | st.integers(0, 10**11),
)
def test_refusals_are_read_as_over_the_wire(
    status: int, retry_after: str | None, queue_ns: int | None
) -> None:
    failure = Failure(
        status=status, reason="why", message="because", outcome=Outcome.REJECTED, may_retry=False
    )
    answer = of_failure(failure, None)
    headers = (*answer.headers, *server_timing(queue_ns, 5_000_000))
    if retry_after is not None:
        headers = (*headers, (b"retry-after", retry_after.encode()))
    real, simulated = ReplyReader(False, 1), AnswerReader(False, 1)
    real.head(status, headers, 1_767_225_601.5)
    simulated.head(status, headers)
    real.feed(answer.body, 1_500_000_000)
    expected = real.result(Ending.COMPLETE, 5)
    found = simulated.result(Ending.COMPLETE, 1_500_000_000, 5)
    assert msgspec.structs.asdict(found) == msgspec.structs.asdict(expected)


def test_an_answer_that_acknowledges_another_request_is_a_foreign_one() -> None:
    reader = AnswerReader(False, 41)
    reader.head(200, ((b"content-type", b"application/json"),))
    reader.body(Frame(42, 16, 24, 16, done=True).encode(), 0)
    result = reader.result(Ending.COMPLETE, 10, 0)
    assert (result.outcome, result.own_answer) == (Outcome.FAILED, False)


def test_a_stream_without_its_end_is_truncated_however_it_ends() -> None:
    for ending in (Ending.COMPLETE, Ending.CUT):
        reader = AnswerReader(True, 41)
        reader.head(200, ((b"content-type", b"text/event-stream"),))
        reader.body(Frame(41, 9).encode(), 3)
        result = reader.result(ending, 10, 0)
        assert result.outcome is Outcome.TRUNCATED
        assert (result.first_token_ns, result.output_tokens, result.own_answer) == (3, 9, True)


def test_the_number_of_a_run_is_in_every_marker() -> None:
    job = Job(input_tokens=24, output_tokens=16, declared_output_tokens=48)
    arrival = Arrival(seq=3, tenant="b", service_class="standard", phase="load", due_ns=0, job=job)
    start = AttemptStart(number=2, due_ns=0, timeout_at_ns=1)
    marker = Submitter(9, PLACES).write(arrival, start, Random(1).randrange(10)).marker
    assert (marker.run, marker.tenant, marker.seq, marker.attempt) == (9, 500, 3, 2)
