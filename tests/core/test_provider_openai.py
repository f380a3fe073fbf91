"""OpenAI's wire format, byte for byte where clients depend on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_provider import faults
from fake_provider.call import Call
from fake_provider.config import FaultSpec, ProviderConfig
from fake_provider.core import Provider
from fake_provider.marker import Marker, decode_ack, encode, message
from fake_provider.openai import OpenAIChat, model_body, models_body
from fake_provider.wire import MAX_BODY_BYTES, Unreadable, content_type
from provider_helpers import EXACT, refusal, service

MARKER = Marker(run=0, tenant=3, seq=77, attempt=1, output_tokens=12)
HEADERS = {b"authorization": b"Bearer sk-1", b"x-stainless-retry-count": b"2"}
WIRE = OpenAIChat(epoch_ns=1_800_000_000 * 1_000_000_000)


def body(**fields: Any) -> bytes:
    asked = {"model": "m", "messages": [{"role": "user", "content": message(MARKER, 40)}], **fields}
    return json.dumps({name: value for name, value in asked.items() if value is not ...}).encode()


def call(**fields: Any) -> Call:
    core = Provider(ProviderConfig(latency=EXACT))
    return service(core.arrive(0, WIRE.parse(HEADERS, body(**fields))))


def events(data: bytes) -> list[Any]:
    frames = data.decode().split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") for frame in frames)
    return [frame if frame == "data: [DONE]" else json.loads(frame[6:]) for frame in frames]


# ------------------------------------------------------------------------------------------------ requests


def test_a_request_is_read() -> None:
    asked = WIRE.parse(HEADERS, body(max_tokens=48, stream=True, stream_options={"include_usage": True}))
    assert (asked.api_key, asked.model, asked.marker, asked.max_tokens) == ("sk-1", "m", MARKER, 48)
    assert (asked.stream, asked.include_usage, asked.retry_count) == (True, True, 2)
    assert (asked.input_tokens, asked.text_chars) == (40, len(message(MARKER, 40)))


def test_characters_are_counted_after_decoding() -> None:
    text = "naïve 東京 \U0001f600"
    asked = WIRE.parse(
        {}, json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    )
    assert asked.text_chars == len(text)
    assert asked.api_key == "anonymous"


def test_content_may_be_a_list_of_parts() -> None:
    parts = [
        {"type": "text", "text": encode(MARKER)},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "hi"},
    ]
    asked = WIRE.parse({}, body(messages=[{"role": "user", "content": parts}]))
    assert (asked.marker, asked.input_tokens) == (MARKER, 14)


def test_the_marker_counts_in_the_last_user_message_only() -> None:
    other = Marker(run=0, tenant=9, seq=1, attempt=0, output_tokens=1)
    talk = [
        {"role": "system", "content": encode(other)},
        {"role": "user", "content": encode(other)},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": encode(MARKER)},
        {"role": "tool", "content": encode(other)},
    ]
    assert WIRE.parse({}, body(messages=talk)).marker == MARKER
    assert WIRE.parse({}, body(messages=[*talk, {"role": "user", "content": "and then?"}])).marker is None
    assert WIRE.parse({}, body(messages=talk[:1])).marker is None


def test_the_newer_name_of_the_limit_wins() -> None:
    assert WIRE.parse({}, body(max_tokens=5, max_completion_tokens=7)).max_tokens == 7
    assert WIRE.parse({}, body(max_tokens=5, max_completion_tokens=None)).max_tokens == 5


def test_fields_that_mean_nothing_here_are_ignored() -> None:
    assert (
        WIRE.parse({}, body(temperature=0.3, tools=[{"type": "function"}], user="u", n=1, stream=None)).model
        == "m"
    )


@pytest.mark.parametrize(
    ("raw", "param", "code"),
    [
        (b"", None, None),
        (b"{", None, None),
        (b'{"model":"\xff"}', None, None),
        (b"[]", None, "invalid_type"),
        (body(model=...), "model", None),
        (body(messages=...), "messages", "missing_required_parameter"),
        (body(messages=[]), "messages", "empty_array"),
        (body(messages=[{"role": "user", "content": 3}]), "messages[0].content", "invalid_type"),
        (body(messages=[{"content": "x"}]), "messages[0]", "invalid_type"),
        (body(max_tokens=0), "max_tokens", "integer_below_min_value"),
        (body(max_tokens="many"), "max_tokens", "invalid_type"),
        (body(n=2), "n", "unsupported_value"),
        (b'{"x":' * 100_000, None, None),
    ],
)
def test_what_cannot_be_read_is_a_400_in_openais_shape(
    raw: bytes, param: str | None, code: str | None
) -> None:
    with pytest.raises(Unreadable) as caught:
        WIRE.parse(HEADERS, raw)
    error = json.loads(caught.value.body)["error"]
    assert caught.value.status == 400
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"]
    assert caught.value.request.api_key == "sk-1"


@given(st.binary(max_size=200))
def test_no_body_breaks_the_parser(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        WIRE.parse({}, raw)


def test_a_body_that_is_too_long_is_a_413() -> None:
    with pytest.raises(Unreadable) as caught:
        WIRE.parse({}, b" " * (MAX_BODY_BYTES + 1))
    assert caught.value.status == 413


@pytest.mark.parametrize("name", [b"x" * 513, "é".encode()])
def test_a_client_request_id_must_be_short_and_ascii(name: bytes) -> None:
    with pytest.raises(Unreadable):
        WIRE.parse({b"x-client-request-id": name}, body())


# ------------------------------------------------------------------------------------------------- answers


def test_a_plain_answer_has_openais_fields() -> None:
    answer = json.loads(WIRE.whole(call(max_tokens=48)))
    content = answer["choices"][0]["message"].pop("content")
    assert answer == {
        "id": "chatcmpl-0000000000000001",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "m",
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 40,
            "completion_tokens": 12,
            "total_tokens": 52,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert (decode_ack(content), len(content.split())) == (77, 12)


def test_an_answer_cut_by_max_tokens_says_length() -> None:
    answer = json.loads(WIRE.whole(call(max_tokens=7)))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 7


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_has_openais_chunks(usage: bool) -> None:
    streaming = call(stream=True, stream_options={"include_usage": usage})
    frames = WIRE.frames(streaming)
    got = events(frames.piece(0, 1) + frames.piece(1, 12) + frames.tail())
    assert got.pop() == "data: [DONE]"
    last = got.pop() if usage else None
    assert [chunk["object"] for chunk in got] == ["chat.completion.chunk"] * 4
    assert [chunk["choices"][0]["finish_reason"] for chunk in got] == [None, None, None, "stop"]
    deltas = [chunk["choices"][0]["delta"] for chunk in got]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert deltas[3] == {}
    assert deltas[1]["content"] + deltas[2]["content"] == streaming.text(0, 12)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in got}) == 1
    if usage:
        assert all(chunk["usage"] is None for chunk in got)
        assert last is not None
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 12)
    else:
        assert not any("usage" in chunk for chunk in got)


def test_model_names_are_escaped_in_chunks() -> None:
    name = 'we"ird\\\n東'
    assert events(WIRE.frames(call(model=name, stream=True)).piece(0, 2))[1]["model"] == name


def test_an_error_in_a_stream_is_an_event_of_its_own() -> None:
    assert events(WIRE.frames(call(stream=True)).error())[0]["error"]["code"] == "server_is_overloaded"


def test_every_answer_carries_its_request_id() -> None:
    fields = dict(WIRE.headers(call(), 1_500_000_000, {b"x-client-request-id": b"mine"}))
    assert fields[b"x-request-id"] == b"req_0000000000000001"
    assert fields[b"openai-processing-ms"] == b"1500"
    assert fields[b"openai-version"] == b"2020-10-01"
    assert fields[b"x-client-request-id"] == b"mine"


def test_models_are_listed() -> None:
    assert models_body(("a", "b")) == {"object": "list", "data": [model_body("a"), model_body("b")]}
    assert model_body("a")["object"] == "model"


# -------------------------------------------------------------------------------------------------- errors


def refused(
    config: dict[str, Any], *, warm: int | None = None, **fields: Any
) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
    core = Provider(ProviderConfig.model_validate({"latency": EXACT, **config}))
    if warm is not None:
        service(core.arrive(0, WIRE.parse({}, body(max_tokens=warm))))
    decision = refusal(core.arrive(0, WIRE.parse({}, body(**fields))))
    headers, text = WIRE.refusal(decision)
    return decision.status, dict(headers), json.loads(text)["error"]


def test_a_tpm_refusal_reads_as_openais() -> None:
    status, headers, error = refused({"tokens_per_minute": 30_000}, warm=28_039, max_tokens=3_906)
    assert (status, headers) == (429, {b"retry-after": b"4"})
    assert (error["type"], error["code"], error["param"]) == ("tokens", "rate_limit_exceeded", None)
    assert error["message"] == (
        "Rate limit reached for m in organization org-fake on tokens per min (TPM): Limit 30000, Used 28039, "
        "Requested 3906. Please try again in 3.89s. "
        "Visit https://platform.openai.com/account/rate-limits to learn more."
    )


def test_an_rpm_refusal_reads_as_openais() -> None:
    status, headers, error = refused(
        {"requests_per_minute": 3, "bucket_s": 20, "retry_after": "milliseconds"}, warm=1
    )
    assert (status, headers) == (429, {b"retry-after": b"20", b"retry-after-ms": b"20000"})
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert (
        "on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s."
        in error["message"]
    )


def test_a_call_that_never_fits_is_told_so_and_promised_nothing() -> None:
    status, headers, error = refused({"tokens_per_minute": 30_000}, max_tokens=31_538)
    assert (status, headers, error["type"]) == (429, {}, "tokens")
    assert error["message"].startswith(
        "Request too large for m in organization org-fake on tokens per min (TPM)"
    )
    assert "Limit 30000, Requested 31538." in error["message"]


@pytest.mark.parametrize(
    ("config", "status", "kind", "code"),
    [
        ({"any_model": False}, 404, "invalid_request_error", "model_not_found"),
        ({"faults": [{"kind": "quota-exhausted"}]}, 429, "insufficient_quota", "insufficient_quota"),
        (
            {"faults": [{"kind": "quota-exhausted", "params": {"code": "credit_balance_exhausted"}}]},
            429,
            "insufficient_quota",
            "credit_balance_exhausted",
        ),
        ({"context_tokens": 39}, 400, "invalid_request_error", "context_length_exceeded"),
        (
            {"faults": [{"kind": "error-rate", "params": {"rate": 1, "status": 403}}]},
            403,
            "request_forbidden",
            "unsupported_country_region_territory",
        ),
        (
            {"faults": [{"kind": "error-rate", "params": {"rate": 1, "status": 408}}]},
            408,
            "server_error",
            None,
        ),
        ({"faults": [{"kind": "slow-down"}]}, 429, "rate_limit_error", "slow_down"),
        ({"faults": [{"kind": "outage"}]}, 503, "service_unavailable_error", "server_is_overloaded"),
        ({"faults": [{"kind": "error-rate", "params": {"rate": 1}}]}, 500, "server_error", None),
        (
            {"slots": 1, "faults": [{"kind": "slots-cut", "params": {"to": 0}}]},
            503,
            "service_unavailable_error",
            "server_is_overloaded",
        ),
    ],
)
def test_every_refusal_has_openais_type_and_code(
    config: dict[str, Any], status: int, kind: str, code: str | None
) -> None:
    got, _, error = refused(config)
    assert (got, error["type"], error["code"]) == (status, kind, code)
    assert error["message"]


@pytest.mark.parametrize("status", [502, 504])
def test_a_gateway_in_front_answers_with_a_page(status: int) -> None:
    spec = FaultSpec(kind="error-rate", params={"rate": 1, "status": status})
    core = Provider(ProviderConfig(latency=EXACT, faults=(spec,)))
    fields, text = WIRE.refusal(refusal(core.arrive(0, WIRE.parse({}, body()))))
    assert (fields, content_type(text)) == ([], (b"content-type", b"text/html"))
    assert text.startswith(b"<html>")
    assert content_type(b'{"error": {}}') == (b"content-type", b"application/json")


def test_prompt_and_answer_must_fit_the_context() -> None:
    core = Provider(ProviderConfig(latency=EXACT, context_tokens=100))
    service(core.arrive(0, WIRE.parse({}, body(max_tokens=60))))
    decision = refusal(core.arrive(0, WIRE.parse({}, body(max_tokens=61))))
    error = json.loads(WIRE.refusal(decision)[1])["error"]
    assert (decision.status, error["param"], decision.call.entry.ending) == (400, "messages", "invalid")
    assert "maximum context length is 100 tokens. However, you requested 101 tokens" in error["message"]


def test_every_fault_that_refuses_has_words_of_its_own() -> None:
    core = Provider(ProviderConfig(latency=EXACT))
    for kind, params in (("first-n-fail", {"n": 1}), ("first-n-fail", {"n": 1, "status": 429})):
        core.add_fault(0, faults.make(FaultSpec(kind=kind, params=params), 0))
    texts = [WIRE.refusal(refusal(core.arrive(0, WIRE.parse({}, body()))))[1] for _ in range(2)]
    assert len(set(texts)) == 2
