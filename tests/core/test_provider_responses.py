"""OpenAI's responses, byte for byte where clients depend on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider.call import Call
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.marker import Marker, decode_ack, encode, message
from fake_provider.openai_responses import OpenAIResponses
from fake_provider.wire import Unreadable
from provider_helpers import EXACT, refusal, service

MARKER = Marker(run=0, tenant=3, seq=77, attempt=1, output_tokens=24)
OTHER = Marker(run=0, tenant=9, seq=1, attempt=0, output_tokens=1)
HEADERS = {b"authorization": b"Bearer sk-1", b"x-stainless-retry-count": b"2"}
WIRE = OpenAIResponses(epoch_ns=1_800_000_000 * 1_000_000_000)


def body(**fields: Any) -> bytes:
    asked = {"model": "m", "input": message(MARKER, 40), **fields}
    return json.dumps({name: value for name, value in asked.items() if value is not ...}).encode()


def call(**fields: Any) -> Call:
    core = Provider(ProviderConfig(latency=EXACT))
    return service(core.arrive(0, WIRE.parse(HEADERS, body(**fields))))


def events(data: bytes) -> list[Any]:
    """The data of each event, whose type must be its name; they are numbered."""
    frames = data.decode().split("\n\n")
    assert frames.pop() == ""
    found = []
    for number, frame in enumerate(frames):
        name, text = frame.split("\n")
        found.append(json.loads(text.removeprefix("data: ")))
        assert (name, found[-1]["sequence_number"]) == (f"event: {found[-1]['type']}", number)
    return found


def test_a_request_is_read() -> None:
    asked = WIRE.parse(HEADERS, body(stream=True, max_output_tokens=48, instructions="be brief"))
    assert (asked.api_key, asked.endpoint, asked.marker) == ("sk-1", "responses", MARKER)
    assert (asked.max_tokens, asked.stream, asked.retry_count, asked.input_tokens) == (48, True, 2, 42)


def test_input_may_be_a_list_of_items_and_the_last_user_message_counts() -> None:
    items = [
        {"role": "developer", "content": encode(OTHER)},
        {"role": "user", "content": encode(OTHER)},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": encode(MARKER)}]},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": encode(OTHER)},
    ]
    assert WIRE.parse(HEADERS, body(input=items, instructions=encode(OTHER))).marker == MARKER


@pytest.mark.parametrize(
    ("raw", "param", "code"),
    [
        (b"{", None, None),
        (body(model=...), "model", "missing_required_parameter"),
        (body(input=...), "input", "missing_required_parameter"),
        (body(input=[]), "input", "missing_required_parameter"),
        (body(input=3), "input", "invalid_type"),
        (body(max_output_tokens=15), "max_output_tokens", "integer_below_min_value"),
        (body(background=True, store=False), "background", "unsupported_value"),
        (body(background=True, stream=True), "stream", "unsupported_value"),
    ],
)
def test_what_cannot_be_read_is_a_400_in_openais_shape(
    raw: bytes, param: str | None, code: str | None
) -> None:
    with pytest.raises(Unreadable) as caught:
        WIRE.parse(HEADERS, raw)
    error = json.loads(caught.value.body)["error"]
    assert (caught.value.status, caught.value.request.endpoint) == (400, "responses")
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


@given(st.binary(max_size=200))
def test_no_body_breaks_the_parser(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        WIRE.parse({}, raw)


def test_a_plain_answer_has_openais_fields() -> None:
    answer = json.loads(WIRE.whole(call(max_output_tokens=48)))
    [item] = answer["output"]
    [part] = item["content"]
    assert (answer["id"], answer["object"], answer["status"]) == (
        "resp_0000000000000001",
        "response",
        "completed",
    )
    assert (answer["created_at"], answer["completed_at"]) == (1_800_000_000, 1_800_000_000)
    assert (answer["error"], answer["incomplete_details"]) == (None, None)
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert (part["type"], part["annotations"]) == ("output_text", [])
    assert (decode_ack(part["text"]), len(part["text"].split())) == (77, 24)
    assert answer["usage"] == {
        "input_tokens": 40,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 24,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 64,
    }


def test_an_answer_cut_by_its_limit_is_incomplete() -> None:
    answer = json.loads(WIRE.whole(call(max_output_tokens=16)))
    assert (answer["status"], answer["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert (answer["usage"]["output_tokens"], answer["completed_at"]) == (16, None)


@pytest.mark.parametrize(("limit", "end"), [(48, "completed"), (16, "incomplete")])
def test_a_stream_has_openais_events(limit: int, end: str) -> None:
    streaming = call(stream=True, max_output_tokens=limit)
    tokens = streaming.output_tokens
    frames = WIRE.frames(streaming)
    got = events(frames.piece(0, 1) + frames.piece(1, tokens) + frames.tail())
    assert [event["type"].removeprefix("response.") for event in got] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        end,
    ]
    text = streaming.text(0, tokens)
    assert "".join(event["delta"] for event in got[4:6]) == got[6]["text"] == got[7]["part"]["text"] == text
    assert got[0]["response"]["output"] == []
    assert got[9]["response"]["output"] == [got[8]["item"]]
    assert got[9]["response"] == json.loads(WIRE.whole(streaming))
    assert len({event["item_id"] for event in got if "item_id" in event} | {got[8]["item"]["id"]}) == 1


def test_an_error_in_a_stream_is_an_event_of_its_own() -> None:
    frames = WIRE.frames(call(stream=True))
    *_, error = events(frames.piece(0, 1) + frames.error())
    assert (error["type"], error["code"], error["param"]) == ("error", "server_is_overloaded", None)


def test_an_overload_is_a_503_here() -> None:
    config = ProviderConfig.model_validate({"faults": [{"kind": "outage"}]})
    decision = refusal(Provider(config).arrive(0, WIRE.parse(HEADERS, body())))
    assert (decision.status, json.loads(WIRE.refusal(decision)[1])["error"]["code"]) == (
        503,
        "server_is_overloaded",
    )
