"""Streams of an API that a target maps: how they are asked for, cut, read, and seen to be whole."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentload.client.logical import AttemptResult
from agentload.client.request_writer import RequestWriter
from agentload.client.stream_framing import parser_of
from agentload.client.wire import Ending, ReplyReader
from agentload.flavours import Flavour, Framing
from agentload.flavours.http import Http
from agentload.model import Arrival, Job, Outcome
from agentload.targets import Target
from fake_provider.marker import Marker, ack
from fake_provider.words import filler

SEQ = 77
MARKER = Marker(run=1, tenant=3, seq=SEQ, attempt=0, output_tokens=24)
WORDS = [f"{word} " for word in (ack(MARKER) + filler(4)).split()]
SSE = {"events": "sse", "text": "d.text", "done": "[DONE]", "output_tokens": "n"}
LINES = {"events": "ndjson", "text": "response", "ended": "done", "output_tokens": "eval_count"}
PLAIN = {"events": "chunks"}


def target(ask: dict[str, Any] | None = None, **stream: Any) -> Target:
    http = {"body": {"q": "{prompt}", "options": {"n": "{max_tokens}"}}, "text": "text"}
    told = {**http, "stream": {**stream, "ask": {"stream": True} if ask is None else ask}}
    return Target(name="t", host="gw", port=80, path="/x", flavour="http", options={"http": told})


def api(**stream: Any) -> Flavour:
    return target(**stream).api


def as_sse(*data: object) -> bytes:
    return b"".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n".encode() for one in data)


def as_lines(*data: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in data)


SAID = {
    "sse": as_sse(*({"d": {"text": word}} for word in WORDS), {"n": 17}, "[DONE]"),
    "ndjson": as_lines(
        *({"response": word, "done": False} for word in WORDS), {"done": True, "eval_count": 17}
    ),
    "chunks": "".join(WORDS).encode(),
}
KINDS = {"sse": SSE, "ndjson": LINES, "chunks": PLAIN}
TYPES = {"sse": b"text/event-stream", "ndjson": b"application/x-ndjson", "chunks": b"text/plain"}


def read(
    flavour: Flavour,
    pieces: list[bytes],
    ending: Ending = Ending.COMPLETE,
    *,
    stream: bool = True,
    kind: bytes = b"text/event-stream",
) -> tuple[AttemptResult, ReplyReader]:
    reader = ReplyReader(flavour.as_stream(stream), SEQ, None, flavour)
    reader.head(200, [(b"content-type", kind)], 0.0)
    for at_ns, piece in enumerate(pieces, 1):
        reader.feed(piece, at_ns)
    return reader.result(ending, 0), reader


def cut(data: bytes, random: Random) -> list[bytes]:
    places = sorted(random.sample(range(1, len(data)), 12))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("name", KINDS)
def test_a_stream_is_read_wherever_the_network_cuts_it(name: str) -> None:
    for seed in range(20):
        pieces = cut(SAID[name], Random(seed))
        result, reader = read(api(**KINDS[name]), pieces, kind=TYPES[name])
        assert (result.outcome, result.own_answer) == (Outcome.ANSWERED, True)
        assert result.output_tokens == (len(WORDS) if name == "chunks" else 17)
        assert len(reader.token_arrivals_ns) > 3
        assert result.first_token_ns is not None
        assert result.first_token_ns < (result.last_token_ns or 0)


@pytest.mark.parametrize(("name", "expected"), [("sse", 1), ("ndjson", 1), ("chunks", 0)])
def test_the_end_that_an_api_names_is_the_end_of_its_stream(name: str, expected: int) -> None:
    """It is not waited for after that, and without it a stream is truncated however its message ends."""
    _, reader = read(api(**KINDS[name]), [SAID[name]], kind=TYPES[name])
    assert reader.is_whole is bool(expected)
    half = SAID[name][: len(SAID[name]) // 2]
    for ending in (Ending.COMPLETE, Ending.CUT):
        result, _ = read(api(**KINDS[name]), [half], ending, kind=TYPES[name])
        seen = ending is Ending.CUT or expected
        assert result.outcome is (Outcome.TRUNCATED if seen else Outcome.ANSWERED), (
            "of chunks nobody can know"
        )


def test_where_no_end_is_named_the_message_says_it() -> None:
    flavour = api(events="sse", text="d.text")
    data = as_sse({"d": {"text": "a "}}, {"d": {"text": "b"}})
    assert read(flavour, [data])[0].outcome is Outcome.ANSWERED
    assert read(flavour, [data], Ending.CUT)[0].outcome is Outcome.TRUNCATED
    lines = api(events="ndjson", text="t")
    assert read(lines, [b'{"t": "a"}\n{"t": "b"}'])[0].outcome is Outcome.ANSWERED
    assert read(lines, [b'{"t": "a"}\n{"t": "'])[0].outcome is Outcome.TRUNCATED, "half a line"
    assert read(flavour, [], Ending.COMPLETE)[0].outcome is Outcome.TRUNCATED


def test_who_has_said_all_may_still_owe_the_end() -> None:
    flavour = api(events="sse", text="t", ended="finish", done="end")
    said = as_sse({"t": "a", "finish": None}, {"t": "", "finish": "stop"})
    assert read(flavour, [said])[0].outcome is Outcome.ANSWERED, "its message has ended"
    assert read(flavour, [said], Ending.CUT)[0].outcome is Outcome.TRUNCATED
    by_type = said + b"event: end\ndata: {}\n\n"
    assert read(flavour, [by_type], Ending.CUT)[0].outcome is Outcome.ANSWERED


def test_the_last_line_needs_no_line_ending() -> None:
    result, _ = read(api(**LINES), [SAID["ndjson"].removesuffix(b"\n")])
    assert (result.outcome, result.output_tokens) == (Outcome.ANSWERED, 17)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (as_lines({"response": "a"}, {"error": {"code": "overloaded"}}), "overloaded"),
        (b'{"response": "a"}\nnot json\n', "malformed-answer"),
        (b"x" * (9 * 2**20), "event-too-large"),
    ],
)
def test_an_error_inside_a_stream_is_a_failure(data: bytes, reason: str) -> None:
    result, _ = read(api(**LINES), [data])
    assert (result.outcome, result.reason) == (Outcome.FAILED, reason)


def test_text_is_never_cut_inside_a_character() -> None:
    data = "größer ".encode()
    for place in range(1, len(data)):
        parser = parser_of(Framing.TEXT)
        texts = [e.data for piece in (data[:place], data[place:]) for e in parser.feed(piece)]
        assert b"".join(texts) == data
        assert [text.decode() for text in texts]


@given(st.lists(st.binary(max_size=8), max_size=12), st.sampled_from(list(Framing)))
def test_no_bytes_break_a_parser(pieces: list[bytes], framing: Framing) -> None:
    parser = parser_of(framing)
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += list(parser.end())
    assert sum(len(event.data) for event in events) <= 3 * sum(map(len, pieces))


# --------------------------------------------------------------------------- what is asked


def asked(flavour: Target, *, stream: bool) -> tuple[str, Any]:
    job = Job(input_tokens=40, output_tokens=24, declared_output_tokens=48, stream=stream)
    one = Arrival(seq=SEQ, tenant="a", service_class="standard", phase="p", due_ns=0, job=job)
    head, _, body = RequestWriter(flavour).write(one, MARKER, 0).partition(b"\r\n\r\n")
    [accept] = [line for line in head.decode().split("\r\n") if line.startswith("Accept: ")]
    return accept.removeprefix("Accept: "), json.loads(body)


def test_a_stream_is_asked_for_in_the_targets_words() -> None:
    told = target({"stream": True, "options": {"live": 1}}, **LINES)
    accept, body = asked(told, stream=True)
    assert accept.startswith("application/x-ndjson")
    assert (body["stream"], body["options"]) == (True, {"n": 48, "live": 1})
    accept, body = asked(told, stream=False)
    assert (accept, body["options"], "stream" in body) == ("application/json", {"n": 48}, False)
    plain, _ = read(told.api, [b'{"text": "hello"}'], stream=False, kind=b"application/json")
    assert (plain.outcome, plain.stream) == (Outcome.ANSWERED, None)


def test_an_api_that_cannot_be_asked_for_one_always_streams() -> None:
    told = target({}, **PLAIN)
    assert asked(told, stream=False)[0] == "*/*"
    result, _ = read(told.api, [SAID["chunks"]], stream=False, kind=b"text/plain")
    assert (result.outcome, result.stream) == (Outcome.ANSWERED, True)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ({"events": "chunks", "done": "x"}, "nothing but text: leave out done"),
        ({"events": "ndjson", "ended": "done"}, "must name the place of the text"),
        ({"events": "xml"}, "'sse', 'ndjson' or 'chunks'"),
        ({"text": "a..b"}, "must be a place"),
    ],
)
def test_what_cannot_work_is_refused(stream: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Http.model_validate({"http": {"body": {"q": "{prompt}"}, "text": "t", "stream": stream}})
