"""The client's side of a call: what becomes of every kind of answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.client.logical import AttemptResult
from agentload.client.wire import FOREIGN_ANSWER, Ending, ReplyReader, outcome
from agentload.model import Outcome
from fake_provider.marker import Marker, ack
from fake_provider.words import filler

JSON = [(b"Content-Type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
SEQ = 4711
MARKER = Marker(run=1, tenant=2, seq=SEQ, attempt=0, output_tokens=12)
ANSWER = ack(MARKER) + filler(6)


# --------------------------------------------------------------------------- what comes back


def read(
    chunks: list[bytes],
    *,
    status: int = 200,
    headers: list[tuple[bytes, bytes]] | None = None,
    stream: bool = False,
    ending: Ending = Ending.COMPLETE,
    error: str | None = None,
) -> AttemptResult:
    """Chunk i comes at i + 1 ms."""
    reader = ReplyReader(stream, SEQ)
    if status:
        reader.head(status, (SSE if stream else JSON) if headers is None else headers, 0.0)
    for i, chunk in enumerate(chunks):
        reader.feed(chunk, (i + 1) * 1_000_000)
    return reader.result(ending, 500, transport_error=error, worker=3, connection_reused=True)


def completion(content: str = ANSWER, **fields: Any) -> bytes:
    reply = {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 24, "completion_tokens": 12, "total_tokens": 36},
    }
    return json.dumps({**reply, **fields}).encode()


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(content: str | None = None, finish: str | None = None) -> bytes:
    part = {} if content is None else {"content": content}
    return event(id="x", choices=[{"index": 0, "delta": part, "finish_reason": finish}], usage=None)


DONE = b"data: [DONE]\n\n"
USAGE = event(choices=[], usage={"prompt_tokens": 24, "completion_tokens": 12})
ROLE = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
TOKENS = [delta(ANSWER.split()[0])] + [delta(f" {word}") for word in ANSWER.split()[1:]]
FINISH = delta(finish="stop")
STREAM = [ROLE, *TOKENS, FINISH, USAGE, DONE]


def test_a_plain_answer() -> None:
    body = completion()
    result = read([body[:10], body[10:]])
    assert result == AttemptResult(
        outcome=Outcome.ANSWERED,
        sent_ns=500,
        status=200,
        input_tokens=24,
        output_tokens=12,
        own_answer=True,
        worker=3,
        connection_reused=True,
    )


def test_a_streamed_answer_with_its_times() -> None:
    result = read(STREAM, stream=True)
    assert result.outcome is Outcome.ANSWERED
    assert (result.first_token_ns, result.last_token_ns) == (2_000_000, 13_000_000)
    assert (result.input_tokens, result.output_tokens) == (24, 12)
    assert result.own_answer is True
    assert result.reason is None


def test_tokens_that_come_in_one_piece_are_one_arrival() -> None:
    reader = ReplyReader(True, SEQ)
    reader.head(200, SSE, 0.0)
    cut = len(TOKENS[2]) // 2
    pieces = [ROLE, TOKENS[0], TOKENS[1] + TOKENS[2][:cut], TOKENS[2][cut:], b": still here\n\n"]
    for at_ns, piece in enumerate([*pieces, TOKENS[3], FINISH + USAGE + DONE]):
        reader.feed(piece, at_ns)
    assert reader.token_arrivals_ns == [1, 2, 3, 5]
    reader.feed(TOKENS[4], 8)
    reader.feed(TOKENS[5], 8)
    assert reader.token_arrivals_ns == [1, 2, 3, 5, 8]


def test_tokens_are_counted_where_no_usage_comes() -> None:
    assert read([ROLE, *TOKENS, FINISH, DONE], stream=True).output_tokens == 12
    assert read([completion(usage=None)]).output_tokens == 12


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 5_000), max_size=40))
def test_a_stream_means_the_same_wherever_it_is_cut(places: list[int]) -> None:
    data = b"".join(STREAM)
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    chunks = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    result, whole = read(chunks, stream=True), read([data], stream=True)
    assert (result.outcome, result.output_tokens, result.own_answer) == (Outcome.ANSWERED, 12, True)
    assert (result.input_tokens, result.reason) == (whole.input_tokens, whole.reason)
    assert result.first_token_ns is not None
    assert result.last_token_ns is not None
    assert result.first_token_ns <= result.last_token_ns


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(b"".join(STREAM)) - 1), st.sampled_from([Ending.COMPLETE, Ending.CUT]))
def test_a_stream_cut_short_is_never_an_answer(length: int, ending: Ending) -> None:
    data = b"".join(STREAM)
    finished = length >= len(b"".join([ROLE, *TOKENS, FINISH])) and ending is Ending.COMPLETE
    expected = Outcome.ANSWERED if finished else Outcome.TRUNCATED
    assert read([data[:length]], stream=True, ending=ending).outcome is expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(completion()) - 1))
def test_a_plain_answer_cut_short_is_never_an_answer(length: int) -> None:
    assert read([completion()[:length]], ending=Ending.CUT).outcome is Outcome.TRUNCATED
    assert read([completion()[:length]], ending=Ending.COMPLETE).outcome is Outcome.FAILED


@settings(max_examples=80, deadline=None)
@given(
    chunks=st.lists(st.binary(max_size=60), max_size=5),
    status=st.sampled_from([0, 200, 204, 429, 500]),
    stream=st.booleans(),
    ending=st.sampled_from(list(Ending)),
)
def test_nothing_that_a_server_sends_raises(
    chunks: list[bytes], status: int, stream: bool, ending: Ending
) -> None:
    assert read(chunks, status=status, stream=stream, ending=ending).outcome is not Outcome.ANSWERED


TABLE = [
    (Ending.COMPLETE, 200, True, False, Outcome.ANSWERED),
    (Ending.COMPLETE, 200, False, False, Outcome.TRUNCATED),
    (Ending.CUT, 200, False, False, Outcome.TRUNCATED),
    (Ending.CUT, 200, True, False, Outcome.ANSWERED),
    (Ending.LEFT, 200, True, False, Outcome.ANSWERED),
    (Ending.LEFT, 200, False, False, Outcome.ABANDONED),
    (Ending.LEFT, 429, False, False, Outcome.ABANDONED),
    (Ending.LEFT, 0, False, False, Outcome.ABANDONED),
    (Ending.OPEN, 0, False, False, Outcome.UNFINISHED),
    (Ending.OPEN, 200, False, True, Outcome.UNFINISHED),
    (Ending.UNSENT, 0, False, False, Outcome.UNSENT),
    (Ending.COMPLETE, 200, True, True, Outcome.FAILED),
    (Ending.CUT, 200, False, True, Outcome.FAILED),
    (Ending.CUT, 0, False, False, Outcome.FAILED),
    (Ending.COMPLETE, 204, True, False, Outcome.FAILED),
    (Ending.COMPLETE, 302, True, False, Outcome.FAILED),
    (Ending.COMPLETE, 400, True, False, Outcome.FAILED),
    (Ending.COMPLETE, 500, True, False, Outcome.FAILED),
    (Ending.COMPLETE, 429, True, False, Outcome.REJECTED),
    (Ending.CUT, 429, False, False, Outcome.REJECTED),
    (Ending.COMPLETE, 503, True, False, Outcome.REJECTED),
    (Ending.COMPLETE, 402, True, False, Outcome.REJECTED),
    (Ending.COMPLETE, 413, True, False, Outcome.REJECTED),
    (Ending.COMPLETE, 504, True, False, Outcome.EXPIRED),
]


@pytest.mark.parametrize(("ending", "status", "whole", "spoilt", "expected"), TABLE)
def test_the_table_of_outcomes(
    ending: Ending, status: int, whole: bool, spoilt: bool, expected: Outcome
) -> None:
    assert outcome(ending, status, whole=whole, spoilt=spoilt) is expected


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([*STREAM[:5], event(error={"message": "boom", "code": "server_error"}), DONE], "server_error"),
        ([*STREAM[:5], event(error={"message": "boom", "type": "overloaded_error"})], "overloaded_error"),
        ([*STREAM[:5], event(error={"message": "boom", "code": 429})], "429"),
        ([*STREAM[:5], event(error="boom")], "boom"),
        ([*STREAM[:5], event(error={})], "error"),
        ([*STREAM[:5], b"event: error\ndata: {}\n\n", DONE], "error-event"),
        ([*STREAM[:5], b"data: {nonsense\n\n", DONE], "malformed-answer"),
        ([*STREAM[:5], b"data: \xff\n\n", DONE], "malformed-answer"),
    ],
)
def test_an_error_inside_a_stream_is_a_failure(chunks: list[bytes], reason: str) -> None:
    result = read(chunks, stream=True)
    assert (result.outcome, result.status, result.reason) == (Outcome.FAILED, 200, reason)
    assert result.first_token_ns is not None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error": {"message": "boom", "code": "server_error"}}', "server_error"),
        (b'{"choices": []}', "answer-without-choices"),
        (b"<html>", "malformed-answer"),
        (b"", "malformed-answer"),
        (b"[]", "malformed-answer"),
        (b'{"choices": 7}', "malformed-answer"),
    ],
)
def test_a_200_that_is_no_answer_is_a_failure(body: bytes, reason: str) -> None:
    result = read([body])
    assert (result.outcome, result.reason) == (Outcome.FAILED, reason)


def test_somebody_elses_answer_is_a_failure() -> None:
    theirs = ack(Marker(run=1, tenant=2, seq=SEQ + 1, attempt=0, output_tokens=12)) + filler(6)
    result = read([completion(theirs)])
    assert (result.outcome, result.own_answer, result.reason) == (Outcome.FAILED, False, FOREIGN_ANSWER)


def test_an_answer_without_acknowledgement_says_nothing_about_whose_it_is() -> None:
    result = read([completion("Hello there.")])
    assert (result.outcome, result.own_answer) == (Outcome.ANSWERED, None)


def test_the_terminal_event_is_enough() -> None:
    reader = ReplyReader(True, SEQ)
    reader.head(200, SSE, 0.0)
    for chunk in STREAM[:-1]:
        reader.feed(chunk, 1)
    assert not reader.is_whole
    reader.feed(STREAM[-1], 2)
    assert reader.is_whole
    assert reader.result(Ending.LEFT, 0).outcome is Outcome.ANSWERED


def test_the_content_type_decides_not_what_was_asked_for() -> None:
    assert read([completion()], stream=True, headers=JSON).outcome is Outcome.ANSWERED
    assert read(STREAM, headers=SSE).outcome is Outcome.ANSWERED
    assert read(STREAM, stream=True, headers=[]).outcome is Outcome.ANSWERED


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ([(b"X-Admission-Reason", b"queue_full")], b'{"error": {"code": "other"}}', "queue_full"),
        ([], b'{"error": {"code": null, "type": "tokens", "message": "m"}}', "tokens"),
        ([], b'{"error": {"message": "slow down"}}', "slow down"),
        ([], b'{"error": "slow down"}', "slow down"),
        ([], b'{"detail": "Too Many Requests"}', "Too Many Requests"),
        ([], b"go away", None),
        ([], b"", None),
    ],
)
def test_the_reason_of_a_refusal(headers: list[tuple[bytes, bytes]], body: bytes, reason: str | None) -> None:
    result = read([body], status=429, headers=headers)
    assert (result.outcome, result.reason) == (Outcome.REJECTED, reason)


def test_fields_of_a_refusal() -> None:
    headers = [
        (b"Retry-After", b" 1.5 "),
        (b"retry-after-ms", b"1500"),
        (b"X-Should-Retry", b"false"),
        (b"Server-Timing", b"queue;dur=2"),
    ]
    result = read([], status=503, headers=headers)
    assert (result.retry_after, result.retry_after_s, result.retry_after_hint_s) == ("1.5", None, 1.5)
    assert (result.retry_after_ms, result.should_retry, result.server_queue_ns) == (1500.0, False, 2_000_000)


def test_two_retry_after_fields_are_not_one() -> None:
    result = read([], status=429, headers=[(b"Retry-After", b"1"), (b"Retry-After", b"2")])
    assert (result.retry_after, result.retry_after_s) == ("1, 2", None)


def test_dates_count_from_the_answer() -> None:
    reader = ReplyReader(False, SEQ)
    reader.head(429, [(b"Retry-After", b"Sun, 06 Nov 1994 08:49:37 GMT")], 784_111_770.0)
    assert reader.result(Ending.COMPLETE, 0).retry_after_s == 7.0


def test_a_lost_connection() -> None:
    result = read([], status=0, ending=Ending.CUT, error="connection-reset")
    assert (result.outcome, result.status, result.reason) == (Outcome.FAILED, 0, "connection-reset")


def test_an_answer_without_end_is_not_kept() -> None:
    reader = ReplyReader(False, SEQ)
    reader.head(200, JSON, 0.0)
    for _ in range(9):
        reader.feed(b" " * 2**20, 1)
    result = reader.result(Ending.COMPLETE, 0)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "answer-too-large")
