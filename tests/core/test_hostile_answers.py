"""Answers made to break their reader: without end, or nested without end."""

from __future__ import annotations

import gzip

import pytest

from agentload.client.wire import Ending, ReplyReader
from agentload.drivers.http1_answer import MAX_HEAD_BYTES, Answer, Failure
from agentload.model import Outcome

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DEEP = b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"1\r\n{\r\n0\r\n", b"X-A: " + b"b" * 1000 + b"\r\n"),
        (b"1\r\n{\r\n0\r\nX-A: ", b"b" * 1000),
        (b"1\r\n{\r\n1;", b"b" * 1000),
    ],
    ids=["trailers", "one endless trailer", "one endless chunk extension"],
)
def test_what_follows_the_body_is_bounded(start: bytes, again: bytes) -> None:
    answer = Answer()
    answer.feed(CHUNKED + start)
    assert answer.error is None
    fed = 0
    while answer.error is None and fed < 4 * MAX_HEAD_BYTES:
        answer.feed(again)
        fed += len(again)
    assert answer.error is not None
    assert answer.error.failure is Failure.TOO_LARGE
    assert fed <= MAX_HEAD_BYTES + 2 * len(again)


def test_head_and_trailers_share_one_bound() -> None:
    field = b"X-A: " + b"b" * (MAX_HEAD_BYTES * 2 // 3) + b"\r\n"
    answer = Answer()
    for piece in (CHUNKED[:-2], field, b"\r\n1\r\n{\r\n0\r\n", field + b"\r\n"):
        assert answer.error is None
        answer.feed(piece)
    assert answer.error is not None
    assert answer.error.failure is Failure.TOO_LARGE


def test_framing_of_many_small_chunks_does_not_count() -> None:
    answer = Answer()
    answer.feed(CHUNKED)
    for _ in range(MAX_HEAD_BYTES // 2):
        answer.feed(b"1\r\n{\r\n")
    answer.feed(b"0\r\n\r\n")
    assert (answer.error, answer.complete, answer.body_bytes) == (None, True, MAX_HEAD_BYTES // 2)


@pytest.mark.parametrize(("status", "reason"), [(200, "malformed-answer"), (500, None)])
@pytest.mark.parametrize("stream", [False, True])
def test_json_nested_too_deeply_is_a_failure(status: int, reason: str | None, stream: bool) -> None:
    reader = ReplyReader(stream, 1)
    reader.head(status, [(b"content-type", b"text/event-stream" if stream else b"application/json")], 0.0)
    reader.feed(b"data: " + DEEP + b"\n\ndata: [DONE]\n\n" if stream and status == 200 else DEEP, 1)
    result = reader.result(Ending.COMPLETE, 0)
    assert (result.outcome, result.reason) == (Outcome.FAILED, reason)


def test_an_error_code_that_is_a_tree_is_no_name() -> None:
    reader = ReplyReader(False, 1)
    reader.head(500, [], 0.0)
    reader.feed(b'{"error": {"code": ' + b"[" * 300 + b"]" * 300 + b', "type": "overload"}}', 1)
    assert reader.result(Ending.COMPLETE, 0).reason == "overload"


@pytest.mark.parametrize("usage", ["-1", "1000000000000", "123456789012345678901234567890"])
def test_a_count_that_cannot_be_is_not_recorded(usage: str) -> None:
    reader = ReplyReader(False, 1)
    reader.head(200, [], 0.0)
    counts = f'{{"prompt_tokens": 5, "completion_tokens": {usage}}}'
    reader.feed(f'{{"choices": [{{"message": {{"content": "one two"}}}}], "usage": {counts}}}'.encode(), 1)
    result = reader.result(Ending.COMPLETE, 0)
    assert (result.outcome, result.input_tokens, result.output_tokens) == (Outcome.ANSWERED, None, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"retry-after-ms", b"nan"),
        (b"retry-after-ms", b"1e400"),
        (b"retry-after", b"1 Jan 2000 1:1:1 +" + b"9" * 20),
    ],
    ids=["nan", "inf", "zone"],
)
def test_a_time_without_a_size_makes_no_client_wait_or_fail(name: bytes, value: bytes) -> None:
    reader = ReplyReader(False, 1)
    reader.head(429, [(name, value)], 1.7e9)
    result = reader.result(Ending.COMPLETE, 0)
    assert result.retry_after_ms in (None, 1e15)
    assert result.retry_after_hint_s in (None, -1e15)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}trailing garbage",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["garbage", "second answer"],
)
def test_what_comes_after_an_answer_ends_its_connection(data: bytes) -> None:
    answer = Answer()
    answer.feed(data)
    assert (answer.complete, answer.error, answer.surplus, answer.reusable) == (True, None, True, False)
    assert answer.chunks == [b"{}"]


def test_interim_answers_without_end_are_a_failure() -> None:
    answer, fed = Answer(), 0
    while answer.error is None and fed < 100:
        answer.feed(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
        fed += 1
    assert fed == 17
    assert answer.error is not None
    assert answer.error.failure is Failure.MALFORMED


def test_duplicate_lengths_are_a_failure_and_duplicate_fields_are_a_list() -> None:
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}")
    assert answer.error is not None
    assert answer.error.failure is Failure.MALFORMED
    reader = ReplyReader(False, 1)
    reader.head(429, [(b"Retry-After", b"1"), (b"retry-after", b"2")], 0.0)
    result = reader.result(Ending.COMPLETE, 0)
    assert (result.retry_after, result.retry_after_s) == ("1, 2", None)


def test_a_compressed_bomb_is_never_unpacked() -> None:
    bomb = gzip.compress(b"x" * 2**20)
    reader = ReplyReader(False, 1)
    reader.head(200, [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")], 0.0)
    reader.feed(bomb, 1)
    result = reader.result(Ending.COMPLETE, 0)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "malformed-answer")
