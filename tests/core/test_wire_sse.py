"""Server-sent events: the same events wherever the network cut the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.client.sse import Event, EventParser

STREAM = (
    b"\xef\xbb\xbfdata: one\r\n\r\n"
    b": a comment\n\n"
    b"event: ping\n\n"
    b"event: error\ndata: two\n\n"
    b"data: first\r\ndata:second\rdata:  third\r\n\r\n"
    b"id: 7\nretry: 10\ndata\n\n"
    b'data: {"a": "\xc3\xa9:x"}\n\n\n\n'
    b"data: never finished\n"
)
EVENTS = [
    Event(b"", b"one"),
    Event(b"error", b"two"),
    Event(b"", b"first\nsecond\n third"),
    Event(b"", b""),
    Event(b"", '{"a": "é:x"}'.encode()),
]


def events(chunks: list[bytes]) -> list[Event]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def test_whole_and_byte_by_byte() -> None:
    assert events([STREAM]) == EVENTS
    assert events([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_cut_anywhere(places: list[int]) -> None:
    assert events(cut(STREAM, places)) == EVENTS


@settings(max_examples=150, deadline=None)
@given(
    payloads=st.lists(
        st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"])), max_size=8
    ),
    ending=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    places=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_what_was_sent_is_what_arrives(payloads: list[str], ending: bytes, places: list[int]) -> None:
    data = b"".join(b"data: " + payload.encode() + ending * 2 for payload in payloads)
    assert [event.data.decode() for event in events(cut(data, places))] == payloads


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=10))
def test_any_bytes_give_the_same_events_however_cut(data: bytes, places: list[int]) -> None:
    assert events(cut(data, places)) == events([data])


@pytest.mark.parametrize(
    "line", [b"data: " + b"x" * 1000, b"data: " + b"x" * 1000 + b"\n", b":" + b"x" * 1000]
)
def test_an_endless_event_is_given_up(line: bytes) -> None:
    parser = EventParser()
    for _ in range(9_000):
        assert list(parser.feed(line)) == []
        if parser.overflowed:
            break
    assert parser.overflowed
    assert list(parser.feed(b"\n\ndata: more\n\n")) == []
