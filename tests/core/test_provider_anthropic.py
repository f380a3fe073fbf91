"""Anthropic's wire format, byte for byte where clients depend on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider import faults
from fake_provider.anthropic import AnthropicMessages, tokens_body
from fake_provider.call import Call, Reason, Refusal
from fake_provider.config import FaultSpec, ProviderConfig
from fake_provider.core import Provider
from fake_provider.marker import Marker, decode_ack, encode, message
from fake_provider.wire import MAX_BODY_BYTES, Unreadable
from provider_helpers import EXACT, refusal, service

MARKER = Marker(run=0, tenant=3, seq=77, attempt=1, output_tokens=12)
VERSION = {b"anthropic-version": b"2023-06-01"}
HEADERS = {**VERSION, b"x-api-key": b"sk-ant-1", b"x-stainless-retry-count": b"2"}
WIRE = AnthropicMessages()


def body(**fields: Any) -> bytes:
    talk = [{"role": "user", "content": message(MARKER, 40)}]
    asked = {"model": "claude", "max_tokens": 48, "messages": talk, **fields}
    return json.dumps({name: value for name, value in asked.items() if value is not ...}).encode()


def call(**fields: Any) -> Call:
    core = Provider(ProviderConfig(latency=EXACT))
    return service(core.arrive(0, WIRE.parse(HEADERS, body(**fields))))


def events(data: bytes) -> list[Any]:
    """The data of each event, whose type must be its name."""
    frames = data.decode().split("\n\n")
    assert frames.pop() == ""
    found = []
    for frame in frames:
        name, text = frame.split("\n")
        found.append(json.loads(text.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


# ------------------------------------------------------------------------------------------------ requests


def test_a_request_is_read() -> None:
    asked = WIRE.parse(HEADERS, body(stream=True))
    assert (asked.api_key, asked.model, asked.marker) == ("sk-ant-1", "claude", MARKER)
    assert (asked.endpoint, asked.max_tokens, asked.stream, asked.retry_count) == ("messages", 48, True, 2)
    assert (asked.input_tokens, asked.text_chars) == (40, len(message(MARKER, 40)))


def test_a_bearer_token_is_a_key_too() -> None:
    asked = WIRE.parse({**VERSION, b"authorization": b"Bearer sk-ant-oat"}, body())
    assert asked.api_key == "sk-ant-oat"
    assert WIRE.parse(VERSION, body()).api_key == "anonymous"


def test_the_system_prompt_counts_but_its_marker_does_not() -> None:
    other = Marker(run=0, tenant=9, seq=1, attempt=0, output_tokens=1)
    for system in (encode(other), [{"type": "text", "text": encode(other)}]):
        asked = WIRE.parse(HEADERS, body(system=system))
        assert (asked.marker, asked.input_tokens) == (MARKER, 40 + 13)


def test_content_may_be_a_list_of_blocks_and_the_last_user_message_counts() -> None:
    other = Marker(run=0, tenant=9, seq=1, attempt=0, output_tokens=1)
    talk = [
        {"role": "user", "content": encode(other)},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "done"},
                {"type": "text", "text": encode(MARKER)},
            ],
        },
        {"role": "assistant", "content": encode(other)},
    ]
    assert WIRE.parse(HEADERS, body(messages=talk)).marker == MARKER


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not valid JSON"),
        (b'{"model":"\xff"}', "not valid JSON"),
        (b'{"x":' * 100_000, "not valid JSON"),
        (b"[]", "Expected `object`"),
        (body(model=...), "model: Field required"),
        (body(messages=...), "messages: Field required"),
        (body(messages=[]), "messages: at least one message is required"),
        (body(messages=[{"role": "user", "content": 3}]), "messages.0.content: Expected"),
        (body(messages=[{"role": "system", "content": "x"}]), 'messages.0.role: Unexpected role "system"'),
        (body(max_tokens=...), "max_tokens: Field required"),
        (body(max_tokens=0), "max_tokens: Input should be greater than or equal to 1"),
        (body(max_tokens="many"), "max_tokens: Expected"),
    ],
)
def test_what_cannot_be_read_is_a_400_in_anthropics_shape(raw: bytes, words: str) -> None:
    with pytest.raises(Unreadable) as caught:
        WIRE.parse(HEADERS, raw)
    core = Provider(ProviderConfig())
    counted = core.invalid(0, caught.value.request, caught.value.status)
    answer = json.loads(WIRE.invalid(counted, caught.value))
    assert (caught.value.status, answer["type"]) == (400, "error")
    assert answer["error"]["type"] == "invalid_request_error"
    assert words in answer["error"]["message"]
    assert answer["request_id"] == "req_0000000000000001"
    assert (counted.entry.endpoint, counted.request.api_key) == ("messages", "sk-ant-1")


def test_a_version_must_be_named() -> None:
    with pytest.raises(Unreadable, match="anthropic-version"):
        WIRE.parse({b"x-api-key": b"k"}, body())


@given(st.binary(max_size=200))
def test_no_body_breaks_the_parser(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        WIRE.parse(HEADERS, raw)


def test_a_body_that_is_too_long_is_a_413() -> None:
    with pytest.raises(Unreadable, match="request_too_large") as caught:
        WIRE.parse(HEADERS, b" " * (MAX_BODY_BYTES + 1))
    assert caught.value.status == 413


def test_tokens_are_counted_without_a_limit() -> None:
    asked = WIRE.parse(HEADERS, body(max_tokens=...), needs_limit=False)
    assert json.loads(tokens_body(asked)) == {"input_tokens": 40}


# ------------------------------------------------------------------------------------------------- answers


def test_a_plain_answer_has_anthropics_fields() -> None:
    answer = json.loads(WIRE.whole(call()))
    [block] = answer.pop("content")
    assert answer == {
        "id": "msg_0000000000000001",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 40,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 12,
            "service_tier": "standard",
        },
    }
    assert (block["type"], decode_ack(block["text"]), len(block["text"].split())) == ("text", 77, 12)


def test_an_answer_cut_by_max_tokens_says_so() -> None:
    answer = json.loads(WIRE.whole(call(max_tokens=7)))
    assert (answer["stop_reason"], answer["usage"]["output_tokens"]) == ("max_tokens", 7)


def test_a_stream_has_anthropics_events() -> None:
    streaming = call(stream=True)
    frames = WIRE.frames(streaming)
    got = events(frames.piece(0, 1) + frames.piece(1, 12) + frames.tail())
    assert [event["type"] for event in got] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, block, deltas, end = got[0]["message"], got[1], got[3:5], got[6]
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert (start["usage"]["input_tokens"], start["usage"]["output_tokens"]) == (40, 1)
    assert block["content_block"] == {"type": "text", "text": ""}
    assert {delta["delta"]["type"] for delta in deltas} == {"text_delta"}
    assert "".join(delta["delta"]["text"] for delta in deltas) == streaming.text(0, 12)
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 12


def test_a_stream_that_is_cut_before_its_first_token_has_begun_all_the_same() -> None:
    got = events(WIRE.frames(call(stream=True)).piece(0, 0))
    assert [event["type"] for event in got] == ["message_start", "content_block_start", "ping"]


def test_model_names_are_escaped_in_events() -> None:
    name = 'we"ird\\\n東%s'
    assert events(WIRE.frames(call(model=name, stream=True)).piece(0, 2))[0]["message"]["model"] == name


def test_an_error_in_a_stream_is_an_error_event() -> None:
    [error] = events(WIRE.frames(call(stream=True)).error())
    assert error == {
        "type": "error",
        "error": {"details": None, "type": "overloaded_error", "message": "Overloaded"},
        "request_id": "req_0000000000000001",
    }


def test_every_answer_carries_its_request_id() -> None:
    fields = dict(WIRE.headers(call(), 0, HEADERS))
    assert fields[b"request-id"] == b"req_0000000000000001"
    assert fields[b"anthropic-organization-id"] == b"org-fake"


# -------------------------------------------------------------------------------------------------- errors


def refused(config: dict[str, Any]) -> tuple[Refusal, dict[bytes, bytes], dict[str, Any]]:
    core = Provider(ProviderConfig.model_validate({"latency": EXACT, **config}))
    decision = refusal(core.arrive(0, WIRE.parse(HEADERS, body())))
    headers, text = WIRE.refusal(decision)
    answer = json.loads(text)
    assert (answer["type"], answer["request_id"]) == ("error", "req_0000000000000001")
    assert answer["error"]["message"]
    return decision, dict(headers), answer["error"]


@pytest.mark.parametrize(
    ("config", "status", "kind"),
    [
        ({"any_model": False}, 404, "not_found_error"),
        ({"faults": [{"kind": "outage"}]}, 529, "overloaded_error"),
        ({"faults": [{"kind": "error-rate", "params": {"rate": 1, "status": 403}}]}, 403, "permission_error"),
        ({"faults": [{"kind": "error-rate", "params": {"rate": 1, "status": 504}}]}, 504, "timeout_error"),
        ({"faults": [{"kind": "error-rate", "params": {"rate": 1, "status": 529}}]}, 529, "overloaded_error"),
        ({"faults": [{"kind": "outage", "params": {"status": 503}}]}, 503, "overloaded_error"),
        ({"faults": [{"kind": "quota-exhausted"}]}, 429, "rate_limit_error"),
        ({"faults": [{"kind": "slow-down"}]}, 429, "rate_limit_error"),
        ({"faults": [{"kind": "key-revoked"}]}, 401, "authentication_error"),
        ({"faults": [{"kind": "error-rate", "params": {"rate": 1}}]}, 500, "api_error"),
        ({"slots": 1, "faults": [{"kind": "slots-cut", "params": {"to": 0}}]}, 529, "overloaded_error"),
        ({"tokens_per_minute": 40}, 429, "rate_limit_error"),
    ],
)
def test_every_refusal_has_anthropics_type(config: dict[str, Any], status: int, kind: str) -> None:
    decision, _, error = refused(config)
    assert (decision.status, error["type"]) == (status, kind)


def test_spent_money_is_told_from_a_limit_and_promises_nothing() -> None:
    _, headers, error = refused({"faults": [{"kind": "quota-exhausted"}]})
    assert error["details"] == {"error_code": "enforced_spend_limit_reached"}
    assert headers == {}


def test_every_reason_has_a_type_and_words() -> None:
    for reason in Reason:
        if reason not in (Reason.TOKENS, Reason.INPUT_TOKENS, Reason.OUTPUT_TOKENS, Reason.REQUESTS,
                          Reason.TOO_LARGE, Reason.CONTEXT):  # fmt: skip
            error = json.loads(WIRE.refusal(Refusal(call=call(), status=500, reason=reason))[1])["error"]
            assert error["type"].endswith("_error")
            assert error["message"]


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (39, "prompt is too long: 40 tokens > 39 maximum"),
        (87, "input length and `max_tokens` exceed context limit: 40 + 48 > 87"),
    ],
)
def test_prompt_and_answer_must_fit_the_context(context: int, words: str) -> None:
    decision, _, error = refused({"context_tokens": context})
    assert (decision.status, error["type"], error["message"]) == (400, "invalid_request_error", words)


def test_a_gateway_in_front_answers_with_a_page() -> None:
    spec = FaultSpec(kind="error-rate", params={"rate": 1, "status": 502})
    core = Provider(ProviderConfig(latency=EXACT, faults=(spec,)))
    assert WIRE.refusal(refusal(core.arrive(0, WIRE.parse(HEADERS, body()))))[1].startswith(b"<html>")


def test_faults_that_refuse_find_words_here_too() -> None:
    core = Provider(ProviderConfig(latency=EXACT))
    for params in ({"n": 1}, {"n": 1, "status": 429}):
        core.add_fault(0, faults.make(FaultSpec(kind="first-n-fail", params=params), 0))
    texts = [WIRE.refusal(refusal(core.arrive(0, WIRE.parse(HEADERS, body()))))[1] for _ in range(2)]
    assert [json.loads(text)["error"]["type"] for text in texts] == ["api_error", "rate_limit_error"]
