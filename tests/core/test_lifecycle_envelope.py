"""What the gateway makes of a client's headers and body before admission sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway.envelope import ANONYMOUS, Envelope, EnvelopeReader, Rejected
from agentload.gateway.settings import GatewaySettings
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, TenantConfig

NOW = 1_000_000_000
CLASSES = {"standard": ClassConfig(nominal_share=0.5), "batch": ClassConfig(nominal_share=0.5)}
CONFIG = GatewayConfig(
    pools={"shared": PoolConfig(classes=CLASSES)},
    tenants={
        "acme": TenantConfig(service_class="batch", key_env="ACME_KEY"),
        "open": TenantConfig(service_class="batch"),
    },
)
READER = EnvelopeReader(CONFIG, GatewaySettings(max_body_bytes=10_000), {"s3cret": "acme"})
KEYLESS = EnvelopeReader(
    GatewayConfig(pools={"shared": PoolConfig(classes=CLASSES)}), GatewaySettings(max_body_bytes=10_000), {}
)
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}


def read(
    body: Any = CHAT, reader: EnvelopeReader = KEYLESS, raw: bytes | None = None, **headers: str
) -> Envelope:
    fields = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return reader.read(NOW, 7, fields, json.dumps(body).encode() if raw is None else raw)


def refused(
    reader: EnvelopeReader = KEYLESS, body: Any = CHAT, raw: bytes | None = None, **headers: str
) -> Any:
    with pytest.raises(Rejected) as caught:
        read(body, reader, raw, **headers)
    return caught.value.failure


def test_a_plain_request_gets_the_defaults() -> None:
    request = read().request
    assert (request.id, request.arrived_ns) == (7, NOW)
    assert (request.tenant, request.service_class, request.workflow) == (ANONYMOUS, "standard", "chat")
    assert (request.text_chars, request.input_tokens, request.max_output_tokens) == (11, 3, None)
    assert (request.deadline_ns, request.attempt, request.max_attempts) == (None, 0, None)


def test_the_headers_of_the_envelope_are_read() -> None:
    request = read(
        x_tenant="t",
        x_service_class="batch",
        x_workflow="research",
        x_deadline_ms="1500.5",
        x_attempt="2",
        x_max_attempts="4",
        x_expected_tool_calls="3",
        x_expected_tool_seconds="1.5",
    ).request
    assert (request.tenant, request.service_class, request.workflow) == ("t", "batch", "research")
    assert request.deadline_ns == NOW + 1_500_500_000
    assert (request.attempt, request.max_attempts) == (2, 4)
    assert (request.tool_calls, request.tool_seconds) == (3, 1.5)


def test_the_retry_count_of_official_sdks_is_an_attempt() -> None:
    assert read(x_stainless_retry_count="2").request.attempt == 2
    assert read(x_stainless_retry_count="2", x_attempt="5").request.attempt == 5


@pytest.mark.parametrize(
    ("extra", "bound"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_tokens": 5, "n": 3}, 15),
        ({"max_tokens": None}, None),
    ],
)
def test_the_declared_output_is_over_all_choices(extra: dict[str, Any], bound: int | None) -> None:
    assert read({**CHAT, **extra}).request.max_output_tokens == bound


def test_all_text_counts_decoded() -> None:
    parts = [{"type": "text", "text": "añb"}, {"type": "image_url", "image_url": {"url": "x" * 99}}]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}, {"role": "user", "content": "cd"}]}
    assert read(body).request.text_chars == 5
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert read({**body, "tools": tools}).request.text_chars == 5 + len(json.dumps(tools))


def test_a_deadline_in_the_past_is_the_schedulers_business() -> None:
    assert read(x_deadline_ms="0").request.deadline_ns == NOW


# --------------------------------------------------------------------------- who


def test_a_key_names_its_tenant_and_its_contracts_class() -> None:
    request = read(reader=READER, authorization="Bearer s3cret", x_tenant="open").request
    assert (request.tenant, request.service_class) == ("acme", "batch")


def test_a_tenant_with_a_key_cannot_be_impersonated_by_name() -> None:
    assert refused(READER, x_tenant="acme").status == 401
    assert refused(READER, x_tenant="acme", authorization="Bearer wrong").status == 401


def test_where_keys_are_in_use_nobody_is_anonymous() -> None:
    failure = refused(READER, authorization="Bearer wrong")
    assert (failure.status, failure.reason) == (401, "invalid_api_key")
    assert "wrong" not in failure.message


def test_without_keys_a_bearer_token_means_nothing() -> None:
    assert read(authorization="Bearer whatever").request.tenant == ANONYMOUS
    assert read(authorization="Bearer whatever", x_tenant="t").request.tenant == "t"


def test_a_tenant_cannot_take_another_class_than_agreed() -> None:
    assert read(reader=READER, x_tenant="open", x_service_class="batch").request.service_class == "batch"
    assert refused(READER, x_tenant="open", x_service_class="standard").status == 403


@pytest.mark.parametrize("name", ["x" * 129, "a\x07b", "\xff\xfe"])
def test_a_tenants_name_must_be_one(name: str) -> None:
    assert refused(x_tenant=name).status == 400


# --------------------------------------------------------------------------- what is wrong


def test_an_unknown_class_names_the_known_ones() -> None:
    failure = refused(x_service_class="gold")
    assert (failure.status, failure.reason) == (400, "unknown_service_class")
    assert "batch, standard" in failure.message


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"\xff\xfe{}", "invalid_json"),
        (b"[]", "invalid_request"),
        (b'{"model":"m"}', "invalid_request"),
        (b'{"model":"m","messages":[]}', "invalid_request"),
        (b'{"messages":[{"role":"user","content":"x"}]}', "invalid_request"),
        (b'{"model":"m","messages":[{"role":"user","content":5}]}', "invalid_request"),
        (b'{"model":"m","messages":[{"content":"x"}],"max_tokens":0}', "invalid_request"),
        (b'{"model":"m","messages":[{"content":"x"}],"stream":"yes"}', "invalid_request"),
    ],
)
def test_a_malformed_body_is_a_400(raw: bytes, reason: str) -> None:
    failure = refused(raw=raw)
    assert (failure.status, failure.reason) == (400, reason)
    assert not failure.may_retry


def test_a_body_beyond_the_bound_is_a_413() -> None:
    assert refused(raw=b'{"model":"' + b"x" * 10_000 + b'"}').status == 413


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Deadline-Ms", "soon"),
        ("X-Deadline-Ms", "-1"),
        ("X-Deadline-Ms", "nan"),
        ("X-Deadline-Ms", "inf"),
        ("X-Attempt", "1.5"),
        ("X-Attempt", "-1"),
        ("X-Max-Attempts", "0"),
        ("X-Expected-Tool-Calls", "many"),
        ("X-Expected-Tool-Seconds", "1e9"),
    ],
)
def test_a_malformed_header_is_a_400_that_names_it(header: str, value: str) -> None:
    failure = refused(**{header.lower().replace("-", "_"): value})
    assert (failure.status, failure.reason) == (400, "invalid_header")
    assert header in failure.message


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(["x_deadline_ms", "x_attempt", "x_tenant", "x_service_class", "authorization"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
    ),
    st.one_of(st.binary(max_size=60), st.just(json.dumps(CHAT).encode())),
)
def test_nothing_a_client_sends_is_more_than_a_4xx(headers: dict[str, str], raw: bytes) -> None:
    status, envelope = 200, None
    try:
        envelope = read(raw=raw, **headers)
    except Rejected as rejected:
        status = rejected.failure.status
    assert status in (200, 400, 401, 403, 413)
    assert envelope is None or envelope.request.input_tokens >= 1


# --------------------------------------------------------------------------- what the provider gets


def test_the_body_goes_to_the_provider_as_it_came() -> None:
    raw = json.dumps({**CHAT, "temperature": 0.123456789, "unknown": [1]}).encode()
    assert read(raw=raw).call.body == raw


def test_a_stream_is_asked_for_its_usage_and_otherwise_unchanged() -> None:
    raw = b'  {"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
    call = read(raw=raw).call
    assert (call.stream, call.hide_usage) == (True, True)
    asked = json.loads(call.body)
    assert asked.pop("stream_options") == {"include_usage": True}
    assert asked == json.loads(raw)


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": False}, {}])
def test_a_callers_own_stream_options_are_left_alone(options: dict[str, bool]) -> None:
    raw = json.dumps({**CHAT, "stream": True, "stream_options": options}).encode()
    call = read(raw=raw).call
    assert (call.body, call.hide_usage) == (raw, False)


def test_only_listed_headers_go_to_the_provider() -> None:
    call = read(
        reader=READER,
        authorization="Bearer s3cret",
        cookie="c=1",
        x_tenant="open",
        traceparent="00-1-2-01",
        x_client_request_id="mine",
        x_stainless_retry_count="1",
    ).call
    assert dict(call.headers) == {
        b"traceparent": b"00-1-2-01",
        b"x-client-request-id": b"mine",
        b"x-stainless-retry-count": b"1",
    }


def test_equal_idempotency_keys_of_two_tenants_are_different_to_the_provider() -> None:
    def sent(tenant: str, key: str) -> bytes:
        return dict(read(x_tenant=tenant, idempotency_key=key).call.headers)[b"idempotency-key"]

    assert sent("a", "k") == sent("a", "k")
    assert len({sent("a", "k"), sent("b", "k"), sent("a", "l")}) == 3
