"""Answers made to break their reader: without end, or nested without end."""

from __future__ import annotations

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
