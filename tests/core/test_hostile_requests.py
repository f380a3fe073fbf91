"""Requests, and answers of the provider, made to break the gateway that reads them: one clear answer each."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.gateway.answers import passed_on, stream_headers
from agentload.gateway.envelope import EnvelopeReader, Rejected, read_body
from agentload.gateway.jobs.ends import kept
from agentload.gateway.jobs.reader import JobReader
from agentload.gateway.json_bounds import MAX_TOKENS, MAX_TOTAL_TOKENS
from agentload.gateway.meters import PlainMeter, SseMeter
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.usage import Usage
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.jobs_config import JobsSettings

DEPTH = 100_000
DEEP_LIST = b"[" * DEPTH + b"]" * DEPTH
DEEP_MAP = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
MESSAGES = b'"messages":[{"role":"user","content":"x"}]'
BOUND = 8 * 2**20


def chat(extra: bytes) -> bytes:
    """A chat request with one more member."""
    return b'{"model":"m",' + MESSAGES + b',"x":0,' + extra + b"}"


def jobs() -> JobReader:
    return JobReader(EnvelopeReader(GatewayConfig(), GatewaySettings(), {}), JobsSettings(), BOUND)


HOSTILE = {
    "deep list": chat(b'"z":' + DEEP_LIST),
    "deep tools": chat(b'"tools":' + DEEP_MAP),
    "tokens beyond any float": chat(b'"max_tokens":' + b"9" * 400),
    "tokens beyond 64 bits": chat(b'"max_completion_tokens":' + b"9" * 30),
    "tokens beyond any model": chat(b'"max_tokens":%d' % (MAX_TOKENS + 1)),
    "no number": chat(b'"temperature":NaN'),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_body_is_a_400_wherever_it_is_read(body: bytes) -> None:
    reader = jobs()
    step = b'{"steps":[{"chat":' + body + b"}]}"
    for read in (
        lambda: read_body(body, BOUND),
        lambda: reader.chat((), body),
        lambda: reader.job((), step),
    ):
        with pytest.raises(Rejected) as rejected:
            read()
        assert rejected.value.failure.status == 400
        assert len(rejected.value.failure.message) < 200


def test_what_is_nested_too_deep_is_told_so() -> None:
    with pytest.raises(Rejected, match="nested too deep"):
        read_body(HOSTILE["deep list"], BOUND)


def test_a_number_that_is_none_of_our_business_reaches_the_provider_as_it_came() -> None:
    body = chat(b'"seed":' + b"9" * 300 + b',"temperature":1.10')
    read_body(body, BOUND)
    step = jobs().chat((), body).steps[0].chat
    assert step is not None
    assert b'"seed":' + b"9" * 300 in step.body
    assert b'"temperature":1.10' in step.body


@pytest.mark.parametrize("tokens", [2**63, 10**400, MAX_TOTAL_TOKENS + 1])
def test_a_jobs_budget_is_bounded(tokens: int) -> None:
    body = {"steps": [{"tool": {"name": "t"}}], "max_total_tokens": tokens}
    with pytest.raises(Rejected) as rejected:
        jobs().job((), json.dumps(body).encode())
    assert rejected.value.failure.status == 400


@pytest.mark.parametrize(
    "name", [".", "..", "../x", "a/b", "t\n", "t?x=1", "%2e%2e", "http://x/", "\u00e9", ""]
)
def test_a_tools_name_leads_nowhere_else(name: str) -> None:
    with pytest.raises(Rejected) as rejected:
        jobs().job((), json.dumps({"steps": [{"tool": {"name": name}}]}).encode())
    assert rejected.value.failure.status == 400


@pytest.mark.parametrize("count", [-1, MAX_TOKENS + 1, 10**30])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_provider_that_counts_what_cannot_be_is_not_believed(name: str, count: int) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4} | {name: count}
    answer = {"choices": [{"message": {"content": "one two three"}}], "usage": usage}
    meter = PlainMeter(max_bytes=1_000)
    meter.feed(json.dumps(answer).encode())
    read = meter.finish()
    assert (read.usage, read.tokens, read.error) == (None, 3, None)


@given(st.integers(0, MAX_TOKENS), st.integers(0, MAX_TOKENS))
def test_any_count_that_can_be_is_believed(given_in: int, given_out: int) -> None:
    event = {"choices": [], "usage": {"prompt_tokens": given_in, "completion_tokens": given_out}}
    read = SseMeter().feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert read.usage == Usage(given_in, given_out)


@pytest.mark.parametrize("deep", [DEEP_LIST, b'{"choices":' + DEEP_LIST + b"}"])
def test_an_answer_nested_too_deep_is_no_completion(deep: bytes) -> None:
    meter = PlainMeter(max_bytes=BOUND)
    meter.feed(deep)
    error = meter.finish().error
    assert error is not None
    assert error.code == "invalid_answer"
    event = b"data: " + deep + b"\n\n"
    assert SseMeter().feed(event).forward == event


def test_what_a_tool_answers_nested_too_deep_is_kept_as_text() -> None:
    assert json.loads(kept(DEEP_LIST, BOUND)) == DEEP_LIST.decode()


@pytest.mark.parametrize("value", [b"a\x01b", b"a\r\nset-cookie: b", b"\x7f", b"\x00"])
def test_a_field_of_the_providers_that_no_server_may_send_is_dropped(value: bytes) -> None:
    upstream = ((b"x-request-id", value), (b"openai-version", b"a\tb \xff"))
    for headers in (passed_on(200, upstream, b"{}").headers, stream_headers(upstream, 0, 0)):
        assert (b"openai-version", b"a\tb \xff") in headers
        assert b"x-request-id" not in dict(headers)
