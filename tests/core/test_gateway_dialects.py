"""The gateway's dialects: what each reads of a request and of an answer, and how it words a refusal."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway import answers, dialects, failures
from agentload.gateway.core import GatewayCore
from agentload.gateway.dialects import Dialect
from agentload.gateway.dialects.chat import Chat
from agentload.gateway.dialects.messages import Messages
from agentload.gateway.dialects.responses import Responses
from agentload.gateway.envelope import EnvelopeReader, Rejected
from agentload.gateway.failures import Failure
from agentload.gateway.headers import TO_CLIENT
from agentload.gateway.meters import PlainMeter, SseMeter
from agentload.gateway.protocol import Arrived, Record, Respond, StartUpstream, UpstreamData, UpstreamHeaders
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.upstream import Upstream
from agentload.gateway.usage import ProviderError, Usage
from agentload.scheduler.config import GatewayConfig
from dialect_samples import ALL, CHAT, DELTAS, ENDINGS, ERRORS, MESSAGES, OPENINGS, RESPONSES, WHOLE, event

EACH = pytest.mark.parametrize("dialect", ALL, ids=lambda one: type(one).__name__)
READER = EnvelopeReader(GatewayConfig(), GatewaySettings(max_body_bytes=20_000), {"s3cret": "acme"})
DEEP = b"[" * 5_000 + b"]" * 5_000


def test_every_file_is_a_dialect_with_an_endpoint_of_its_own() -> None:
    assert {one.path for one in dialects.every()} == {one.path for one in ALL}
    package = Path(dialects.__file__).parent
    assert len(list(package.glob("[a-z]*.py"))) == len(ALL)


# --------------------------------------------------------------------------- requests

REQUESTS: dict[Dialect, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 9},
    MESSAGES: {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 9},
    RESPONSES: {"input": "hello there", "max_output_tokens": 9},
}


def asked(dialect: Dialect, **fields: Any) -> dialects.Asked:
    return dialect.asked(json.dumps({"model": "m", **REQUESTS[dialect], **fields}).encode())


@EACH
def test_a_request_says_how_much_it_wants(dialect: Dialect) -> None:
    plain = asked(dialect)
    assert (plain.model, plain.text_chars, plain.max_output_tokens, plain.stream) == ("m", 11, 9, False)
    assert asked(dialect, stream=True).stream


@EACH
def test_tools_and_what_they_were_told_and_said_count_as_input(dialect: Dialect) -> None:
    tools = [{"name": "f", "description": "does"}]
    assert asked(dialect, tools=tools).text_chars == 11 + len(json.dumps(tools))
    talk: dict[Dialect, dict[str, Any]] = {
        CHAT: {"messages": [{"role": "assistant", "tool_calls": [1, 2]}, {"role": "tool", "content": "abc"}]},
        MESSAGES: {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "input": [1, 2]}]},
                {"role": "user", "content": [{"type": "tool_result", "content": 123}]},
            ]
        },
        RESPONSES: {
            "input": [
                {"type": "function_call", "arguments": "[1, 2]"},
                {"type": "function_call_output", "output": 123},
            ]
        },
    }
    assert asked(dialect, **talk[dialect]).text_chars == len("[1, 2]") + len("abc")


def test_what_goes_before_the_talk_counts_as_input() -> None:
    assert asked(MESSAGES, system="abc").text_chars == 14
    assert asked(MESSAGES, system=[{"type": "text", "text": "ab"}]).text_chars == 13
    assert asked(RESPONSES, instructions="abc").text_chars == 14
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "añb"}, {"type": "input_image"}]}]
    assert asked(RESPONSES, input=parts).text_chars == 3


def test_only_chats_streams_must_be_asked_for_their_usage() -> None:
    wishes = {type(one): asked(one, stream=True).usage_wish for one in ALL}
    assert wishes.pop(Chat)
    assert set(wishes.values()) == {b""}
    raw = json.dumps({"model": "m", **REQUESTS[MESSAGES], "stream": True}).encode()
    call = READER.read(0, 1, ((b"x-tenant", b"t"),), raw, MESSAGES).call
    assert (call.body, call.hide_usage, call.stream, call.dialect) == (raw, False, True, MESSAGES)


def test_what_would_be_answered_later_is_not_taken() -> None:
    with pytest.raises(Rejected, match="not a responses request: `background` must be false") as caught:
        READER.read(
            0, 1, (), json.dumps({"model": "m", "input": "x", "background": True}).encode(), RESPONSES
        )
    assert caught.value.failure.status == 400
    assert asked(RESPONSES, background=False).model == "m"


@EACH
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b'{"model":""}', b'{"model":7}', b'{"x":' + DEEP + b"}"]
)
def test_what_is_no_request_is_a_400(dialect: Dialect, raw: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        READER.read(0, 1, (), raw, dialect)
    assert caught.value.failure.status == 400


@EACH
@pytest.mark.parametrize("tokens", [0, -1, 10**12, "many"])
def test_a_bound_must_be_one(dialect: Dialect, tokens: object) -> None:
    name = "max_output_tokens" if dialect is RESPONSES else "max_tokens"
    body = {"model": "m", **REQUESTS[dialect], name: tokens}
    with pytest.raises(Rejected):
        READER.read(0, 1, (), json.dumps(body).encode(), dialect)


def test_anthropics_field_for_keys_names_a_tenant_and_stays_here() -> None:
    fields = ((b"x-api-key", b"s3cret"), (b"anthropic-version", b"2023-06-01"), (b"x-tenant", b"other"))
    envelope = READER.read(0, 1, fields, json.dumps({"model": "m", **REQUESTS[MESSAGES]}).encode(), MESSAGES)
    assert envelope.request.tenant == "acme"
    assert envelope.call.headers == ((b"anthropic-version", b"2023-06-01"),)


# --------------------------------------------------------------------------- answers


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@EACH
@settings(max_examples=60)
@given(places=st.lists(st.integers(0, 10_000), max_size=12))
def test_a_stream_reads_the_same_however_it_is_cut(dialect: Dialect, places: list[int]) -> None:
    said = OPENINGS[dialect] + b"".join(map(DELTAS[dialect], ("one", " two", " three")))
    whole = said + ENDINGS[dialect]
    meter, forward, usage, terminal = SseMeter(dialect), b"", None, False
    for piece in cut(whole + DELTAS[dialect]("after the end"), places):
        reading = meter.feed(piece)
        assert reading.error is None
        forward += reading.forward
        usage, terminal = reading.usage or usage, terminal or reading.terminal
    assert (forward, usage, terminal) == (whole, Usage(7, 3), True)
    assert meter.events == whole.count(b"\n\n")


@EACH
def test_until_its_count_comes_a_stream_is_measured_by_its_text(dialect: Dialect) -> None:
    meter = SseMeter(dialect)
    reading = meter.feed(OPENINGS[dialect] + b"".join(map(DELTAS[dialect], ("one", " two", " three"))))
    assert (reading.tokens, reading.terminal) == (3, False)
    assert reading.usage == (Usage(7, 3) if dialect is MESSAGES else None)


@EACH
@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_error_ends_a_stream_and_is_not_passed_on(dialect: Dialect, which: int) -> None:
    error = ERRORS[dialect][which % len(ERRORS[dialect])]
    reading = SseMeter(dialect).feed(DELTAS[dialect]("one") + error + DELTAS[dialect]("two"))
    assert reading.forward == DELTAS[dialect]("one")
    assert (reading.error, reading.terminal) == (ProviderError("overloaded", "m"), False)


@EACH
def test_what_a_dialect_does_not_know_passes(dialect: Dialect) -> None:
    odd = b": hi\n\n" + event("ping") + b"event: x\ndata: {not json\n\n" + event("response.queued", delta=[1])
    odd += b"data: " + DEEP + b"\n\n"
    reading = SseMeter(dialect).feed(odd)
    assert (reading.forward, reading.tokens, reading.error, reading.terminal) == (odd, 0, None, False)


def test_an_answer_that_is_cut_short_by_its_bound_is_whole_too() -> None:
    end = {"status": "incomplete", "usage": {"input_tokens": 7, "output_tokens": 9}, "error": None}
    reading = SseMeter(RESPONSES).feed(event("response.incomplete", response=end))
    assert (reading.terminal, reading.usage) == (True, Usage(7, 9))


def test_tools_and_thoughts_count_as_output() -> None:
    for delta in ({"type": "thinking_delta", "thinking": "a b"}, {"partial_json": '{"city": "Paris a"}'}):
        assert SseMeter(MESSAGES).feed(event("content_block_delta", delta=delta)).tokens >= 2
    for kind in ("response.function_call_arguments.delta", "response.reasoning_summary_text.delta"):
        assert SseMeter(RESPONSES).feed(event(kind, delta="a b")).tokens == 2


def test_what_was_written_to_the_cache_counts_and_what_was_read_from_it_does_not() -> None:
    usage = {
        "input_tokens": 7,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 99,
        "output_tokens": 1,
    }
    assert SseMeter(MESSAGES).feed(event("message_start", message={"usage": usage})).usage == Usage(12, 0)


def plainly(dialect: Dialect, body: bytes) -> Any:
    meter = PlainMeter(dialect, max_bytes=20_000)
    meter.feed(body)
    return meter.finish()


@EACH
def test_a_plain_answer_is_counted_by_the_provider_or_by_its_text(dialect: Dialect) -> None:
    names = ("prompt_tokens", "completion_tokens") if dialect is CHAT else ("input_tokens", "output_tokens")
    body = WHOLE[dialect]
    assert plainly(dialect, json.dumps(body).encode()).tokens == 2
    counted = json.dumps({**body, "usage": dict(zip(names, (5, 4), strict=True))}).encode()
    reading = plainly(dialect, counted)
    assert (reading.forward, reading.usage, reading.tokens, reading.terminal) == (
        counted,
        Usage(5, 4),
        4,
        True,
    )
    lies = json.dumps({**body, "usage": dict(zip(names, (5, -4), strict=True))}).encode()
    assert plainly(dialect, lies).usage is None


@EACH
@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"{}", DEEP])
def test_what_is_no_answer_is_an_error(dialect: Dialect, body: bytes) -> None:
    assert plainly(dialect, body).error.code == "invalid_answer"
    assert dialect.answer in plainly(dialect, body).error.message


@EACH
def test_an_error_inside_a_200_is_found(dialect: Dialect) -> None:
    body = json.dumps({"error": {"type": "overloaded", "message": "m"}}).encode()
    assert plainly(dialect, body).error == ProviderError("overloaded", "m")
    failed = json.dumps({"status": "failed", "output": [], "error": None}).encode()
    assert plainly(RESPONSES, failed).error is not None


# --------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (402, "billing_error"),
        (403, "permission_error"), (404, "not_found_error"), (413, "request_too_large"),
        (422, "invalid_request_error"), (429, "rate_limit_error"), (502, "api_error"),
        (503, "overloaded_error"), (504, "timeout_error"),
    ],
)  # fmt: skip
def test_anthropics_words_for_a_status(status: int, kind: str) -> None:
    failure = Failure(status=status, reason="r", message="m")
    answer = answers.of_failure(failure, 3, dialect=MESSAGES)
    said = json.loads(answer.body)
    assert (said["type"], said["error"]["type"], said["error"]["message"]) == ("error", kind, "m")
    assert (
        said["error"]["details"]["error_code"] == dict(answer.headers)[b"x-admission-reason"].decode() == "r"
    )
    assert dict(answer.headers)[b"retry-after"] == b"3"


@EACH
def test_a_stream_ends_with_an_error_that_the_dialect_reads_as_one(dialect: Dialect) -> None:
    last = answers.failure_event(dialect, failures.TRUNCATED, 4)
    reading = SseMeter(dialect).feed(last)
    assert reading.error is not None
    assert reading.error.code == "upstream_truncated"
    assert dialect is not RESPONSES or b'"sequence_number":4' in last


@EACH
def test_what_is_refused_at_the_door_is_refused_in_the_dialect_that_was_spoken(dialect: Dialect) -> None:
    core = GatewayCore(GatewayConfig(), GatewaySettings(), Random(1))
    [respond, record] = core.handle(0, Arrived(1, (), b"{", dialect))
    assert isinstance(respond, Respond)
    assert isinstance(record, Record)
    assert respond.status == 400
    assert respond.body == dialect.error(400, "invalid_json", json.loads(respond.body)["error"]["message"])


@EACH
def test_a_call_that_is_cut_ends_in_the_dialect_that_was_spoken(dialect: Dialect) -> None:
    core = GatewayCore(GatewayConfig(), GatewaySettings(), Random(1))
    body = json.dumps({"model": "m", **REQUESTS[dialect], "stream": True}).encode()
    [start] = core.handle(0, Arrived(1, (), body, dialect))
    assert isinstance(start, StartUpstream)
    assert start.call.dialect is dialect
    core.handle(1, UpstreamHeaders(1, 200, ((b"content-type", b"text/event-stream"),)))
    core.handle(2, UpstreamData(1, DELTAS[dialect]("one")))
    said = core.handle(3, UpstreamData(1, ERRORS[dialect][0]))
    [last] = [one.data for one in said if type(one).__name__ == "FailStream"]  # type: ignore[union-attr]
    message = "the provider reported an error in its answer (overloaded)"
    assert last == dialect.error_event(502, "upstream_error_in_answer", message, 1)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", MESSAGES),
        ("/v1/messages/count_tokens", MESSAGES),
        ("/v1/messagesx", CHAT),
        ("/v1/responses/resp_1", RESPONSES),
        ("/nowhere", CHAT),
    ],
)
def test_whose_address_it_is(path: str, dialect: Dialect) -> None:
    assert dialects.at(path, ALL, CHAT) is dialect


# --------------------------------------------------------------------------- the provider's side


def test_our_key_is_shown_as_each_endpoint_wants_it() -> None:
    upstream = Upstream("http://127.0.0.1:9/v1/", "sk-ours", GatewaySettings())
    shown = {}
    for dialect in ALL:
        endpoint = upstream.endpoint(dialect)
        assert str(endpoint.url) == f"http://127.0.0.1:9{dialect.path}"
        shown[type(dialect)] = {k: v for k, v in endpoint.headers.items() if "sk-ours" in v}
    bearer = {"authorization": "Bearer sk-ours"}
    assert shown == {Chat: bearer, Responses: bearer, Messages: {"x-api-key": "sk-ours"}}


def test_anthropics_name_for_our_account_stays_here_and_the_requests_id_does_not() -> None:
    assert b"request-id" in TO_CLIENT
    assert b"anthropic-organization-id" not in TO_CLIENT


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (402, b'{"type":"error","error":{"type":"billing_error","message":"m"}}'),
        (
            429,
            b'{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}',
        ),
    ],
)
def test_a_spent_account_is_no_reason_to_try_again(status: int, body: bytes) -> None:
    failure = failures.of_status(status, body)
    assert (failure.status, failure.reason, failure.may_retry) == (503, "provider_quota_exhausted", False)
