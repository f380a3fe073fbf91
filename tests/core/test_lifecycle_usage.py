"""What the gateway reads out of a provider's answer while it passes by."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway.meters import MAX_EVENT_BYTES, PlainMeter, SseMeter, event_data
from agentload.gateway.usage import ProviderError, Usage

DONE = b"data: [DONE]\n\n"


def event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(text: str) -> bytes:
    return event({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


USAGE = event({"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
ERROR = event({"error": {"message": "overloaded", "type": "server_error", "code": "server_is_overloaded"}})
STREAM = delta("one") + delta(" two") + delta(" three") + USAGE + DONE


def read(meter: SseMeter, pieces: list[bytes]) -> tuple[bytes, int, Usage | None, bool, ProviderError | None]:
    forward, tokens, usage, terminal, error = b"", 0, None, False, None
    for piece in pieces:
        reading = meter.feed(piece)
        forward += reading.forward
        tokens += reading.tokens
        usage = reading.usage or usage
        terminal = terminal or reading.terminal
        error = reading.error or error
    return forward, tokens, usage, terminal, error


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
def test_a_stream_reads_the_same_however_it_is_cut(places: list[int], blank_line: bytes) -> None:
    stream = STREAM.replace(b"\n\n", blank_line)
    forward, tokens, usage, terminal, error = read(SseMeter(), cut(stream, places))
    assert forward == stream
    assert (tokens, usage, terminal, error) == (3, Usage(7, 3), True, None)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_only_whole_events_are_passed_on_and_nothing_from_an_error_on(places: list[int]) -> None:
    forward, _, _, terminal, error = read(SseMeter(), cut(delta("one") + ERROR + delta("two") + DONE, places))
    assert forward == delta("one")
    assert not terminal
    assert error == ProviderError("server_is_overloaded", "overloaded")


def test_the_first_event_is_passed_on_before_the_second_has_come() -> None:
    meter = SseMeter()
    assert meter.feed(delta("one") + delta("two")[:20]).forward == delta("one")
    assert meter.feed(delta("two")[20:]).forward == delta("two")


def test_a_usage_event_that_only_we_asked_for_is_hidden_but_counted() -> None:
    forward, _, usage, terminal, _ = read(SseMeter(hide_usage=True), [STREAM])
    assert forward == STREAM.replace(USAGE, b"")
    assert usage == Usage(7, 3)
    assert terminal


def test_usage_beside_content_is_never_hidden() -> None:
    both = event(
        {"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    )
    assert SseMeter(hide_usage=True).feed(both).forward == both


def test_a_stream_without_done_is_not_terminal() -> None:
    finished = event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert not SseMeter().feed(delta("one") + finished).terminal


def test_comments_and_unknown_events_pass_unread() -> None:
    other = b": keep-alive\n\nevent: ping\ndata: {not json\n\n"
    reading = SseMeter().feed(other)
    assert (reading.forward, reading.tokens, reading.error) == (other, 0, None)


def test_an_endless_event_does_not_fill_memory() -> None:
    meter = SseMeter()
    piece = b"x" * (MAX_EVENT_BYTES // 2)
    assert meter.feed(piece).forward == b""
    assert meter.feed(piece).forward == b""
    assert meter.feed(piece).forward == piece * 3
    assert meter.feed(b"\n\n").forward == b"\n\n"


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\n\n", b"{}"),
        (b"event: x\r\ndata: a\r\ndata: b\r\n\r\n", b"a\nb"),
        (b": comment\n\n", b""),
    ],
)
def test_event_data_follows_the_standard(raw: bytes, data: bytes) -> None:
    assert event_data(raw) == data


def test_tool_calls_and_reasoning_count_as_output() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Paris and Rome"}'}}]}
    assert SseMeter().feed(event({"choices": [{"delta": call}]})).tokens >= 4
    assert SseMeter().feed(event({"choices": [{"delta": {"reasoning_content": "let me think"}}]})).tokens == 3


# --------------------------------------------------------------------------- plain answers


def plain(body: bytes, max_bytes: int = 10_000) -> PlainMeter:
    meter = PlainMeter(max_bytes=max_bytes)
    for start in range(0, len(body), 7):
        meter.feed(body[start : start + 7])
    return meter


def test_a_plain_answer_is_read_when_it_is_whole() -> None:
    body = (
        b'{"choices":[{"message":{"content":"one two"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}'
    )
    reading = plain(body).finish()
    assert (reading.forward, reading.usage, reading.terminal) == (body, Usage(5, 2), True)


def test_a_plain_answer_without_usage_is_counted_by_its_text() -> None:
    assert plain(b'{"choices":[{"message":{"content":"one two"}}]}').finish().tokens == 2


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices":[{"mess', b"[1]"])
def test_what_is_no_completion_is_an_error(body: bytes) -> None:
    error = plain(body).finish().error
    assert error is not None
    assert error.code == "invalid_answer"


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": [{"message": {"content": [{"type": "text", "text": "one two"}]}}]},
        {"choices": [{"message": {"content": None, "refusal": "one two"}}], "usage": {"prompt_tokens": None}},
        {"choices": [{"message": {"content": "one two"}}], "usage": None, "error": None},
    ],
)
def test_an_unusual_completion_is_still_one(odd: dict[str, Any]) -> None:
    reading = plain(json.dumps(odd).encode()).finish()
    assert (reading.error, reading.tokens, reading.usage) == (None, 2, None)


@pytest.mark.parametrize("error", [{"message": "m", "code": "c"}, {"message": "m", "type": "c"}])
def test_an_error_inside_a_200_is_found(error: dict[str, str]) -> None:
    assert plain(json.dumps({"error": error}).encode()).finish().error == ProviderError("c", "m")


def test_a_plain_answer_is_bounded() -> None:
    meter = PlainMeter(max_bytes=10)
    assert meter.feed(b"0123456789").error is None
    error = meter.feed(b"0").error
    assert error is not None
    assert error.code == "answer_too_long"
    assert meter.body == b""


def test_an_event_in_many_small_pieces_is_held_and_its_rest_never_lost() -> None:
    meter = SseMeter()
    long = delta("x" * (MAX_EVENT_BYTES // 2))
    forward = b"".join(meter.feed(bytes([byte])).forward for byte in long)
    assert forward == long
    rest = b"data: " + b"y" * (2 * MAX_EVENT_BYTES)
    forward = meter.feed(delta("one") + rest).forward + meter.feed(b"\n\n").forward
    assert forward == delta("one") + rest + b"\n\n"


@pytest.mark.parametrize("counts", [(-1, 5), (5, -1), (5, 10**10), (10**30, 5)])
def test_counts_that_cannot_be_are_not_believed(counts: tuple[int, int]) -> None:
    usage = {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
    meter = PlainMeter(max_bytes=1000)
    meter.feed(json.dumps({"choices": [{"message": {"content": "one two"}}], "usage": usage}).encode())
    reading = meter.finish()
    assert (reading.usage, reading.tokens, reading.error) == (None, 2, None)


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_output_and_errors_nested_without_end_are_no_text(depth: int) -> None:
    tree = b"[" * depth + b"]" * depth
    meter = SseMeter()
    assert meter.feed(b'data: {"choices": [{"delta": {"content": ' + tree + b"}}]}\n\n").tokens == 0
    error = meter.feed(b'data: {"error": {"code": ' + tree + b"}}\n\n").error
    assert error is None or error == ProviderError("", "")
