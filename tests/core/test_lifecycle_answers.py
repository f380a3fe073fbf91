"""What a client is told, and what it is not told."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.gateway import answers, failures
from agentload.gateway.failures import Failure, FailureKind
from agentload.gateway.headers import Headers
from agentload.gateway.usage import ProviderError
from agentload.model import NS, Outcome
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.events import Refused
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import Request

REQUEST = Request(id=1, tenant="t", service_class="c", input_tokens=1, text_chars=1, arrived_ns=0)


def refused_with(code: str, message: str = "m") -> bytes:
    return json.dumps({"error": {"message": message, "type": "t", "param": None, "code": code}}).encode()


def test_a_failure_has_openais_shape_and_our_headers() -> None:
    failure = Failure(status=429, reason="class_queue_full", message="too many wait")
    answer = answers.of_failure(failure, 3, queue_ns=1_500_000)
    headers = dict(answer.headers)
    assert json.loads(answer.body) == {
        "error": {
            "message": "too many wait",
            "type": "rate_limit_error",
            "param": None,
            "code": "class_queue_full",
        }
    }
    assert headers[b"x-admission-reason"] == b"class_queue_full"
    assert headers[b"retry-after"] == b"3"
    assert headers[b"ratelimit"] == b'"admission";r=0;t=3'
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"server-timing"] == b"queue;dur=1.500"
    assert headers[b"content-length"] == str(len(answer.body)).encode()
    assert b"x-should-retry" not in headers


def test_what_is_refused_for_good_tells_sdks_not_to_retry() -> None:
    headers = dict(
        answers.of_failure(Failure(status=413, reason="r", message="m", may_retry=False), None).headers
    )
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_the_scheduler_has_words_a_status_and_an_outcome(reason: Reason) -> None:
    promise = 2 if reason.invites_retry else None
    failure = failures.of_decision(Refused(REQUEST, reason, promise, None))
    assert failure.status == reason.status
    assert failure.reason == reason.value
    assert " " in failure.message
    assert not failure.upstream
    assert failures.retry_after_s(failure, None, RetryConfig(), Random(1)) == promise
    expected = {504: Outcome.EXPIRED, 400: Outcome.FAILED, 409: Outcome.FAILED}.get(
        reason.status, Outcome.REJECTED
    )
    assert failure.outcome is expected


# --------------------------------------------------------------------------- the provider's failures


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_providers_refusal_is_our_503_and_never_the_tenants_429(status: int) -> None:
    failure = failures.of_status(status, refused_with("rate_limit_exceeded"))
    assert (failure.status, failure.outcome) == (503, Outcome.REJECTED)
    assert failure.refused
    assert failure.retry_after
    assert not failure.worked


def test_an_exhausted_quota_promises_nothing() -> None:
    failure = failures.of_status(429, refused_with("insufficient_quota"))
    assert (failure.status, failure.retry_after, failure.may_retry) == (503, False, False)
    assert not failure.refused


def test_what_the_provider_can_never_take_is_no_429() -> None:
    body = refused_with("rate_limit_exceeded", "Request too large for m on tokens per min (TPM): Limit 10")
    failure = failures.of_status(429, body)
    assert (failure.status, failure.may_retry, failure.upstream) == (413, False, False)


@pytest.mark.parametrize("status", [401, 403])
def test_the_providers_401_is_about_our_key(status: int) -> None:
    failure = failures.of_status(status, refused_with("invalid_api_key", "Incorrect API key: sk-abc"))
    assert (failure.status, failure.reason) == (502, "upstream_credentials")
    assert "sk-" not in failure.message


@pytest.mark.parametrize("status", [300, 418, 500, 502, 504, 599])
def test_any_other_status_is_our_502(status: int) -> None:
    assert failures.of_status(status, b"<html>").status == 502


@pytest.mark.parametrize("kind", list(FailureKind))
def test_only_what_the_provider_cannot_have_seen_is_surely_no_work(kind: FailureKind) -> None:
    failure = failures.BY_KIND[kind]
    assert failure.worked == (kind is FailureKind.BROKEN)
    assert failure.status == (502 if kind is FailureKind.BROKEN else 503)
    assert failure.upstream


def test_an_error_inside_a_200_keeps_its_code_but_not_its_message() -> None:
    failure = failures.of_error(ProviderError("server_is_overloaded", "org-abc is over its limit"))
    assert failure.status == 502
    assert "server_is_overloaded" in failure.message
    assert "org-abc" not in failure.message


# --------------------------------------------------------------------------- Retry-After


@pytest.mark.parametrize(
    ("headers", "wait_ns"),
    [
        ({}, None),
        ({b"retry-after": b"2"}, 2 * NS),
        ({b"retry-after": b"0.5"}, NS // 2),
        ({b"retry-after": b"9", b"retry-after-ms": b"250"}, NS // 4),
        ({b"retry-after": b"9", b"retry-after-ms": b"x"}, 9 * NS),
        ({b"retry-after": b"0"}, None),
        ({b"retry-after": b"-3"}, None),
        ({b"retry-after": b"nan"}, None),
        ({b"retry-after": b"soon"}, None),
        (
            {b"date": b"Sun, 06 Nov 1994 08:49:37 GMT", b"retry-after": b"Sun, 06 Nov 1994 08:49:40 GMT"},
            3 * NS,
        ),
        ({b"retry-after": b"Sun, 06 Nov 1994 08:49:40 GMT"}, None),
    ],
)
def test_the_providers_retry_after_is_read_in_every_form(
    headers: dict[bytes, bytes], wait_ns: int | None
) -> None:
    assert answers.retry_after_ns(tuple(headers.items())) == wait_ns


@settings(max_examples=100)
@given(st.one_of(st.none(), st.integers(0, 10_000 * NS)), st.integers(0, 100))
def test_our_promise_is_whole_seconds_within_its_bounds_and_never_before_the_providers(
    wait_ns: int | None, seed: int
) -> None:
    retry = RetryConfig(base_seconds=2, max_seconds=120)
    promise = failures.retry_after_s(failures.of_status(429, b""), wait_ns, retry, Random(seed))
    assert promise is not None
    assert 1 <= promise <= 120
    if wait_ns is not None:
        assert promise >= min(120, wait_ns / NS)


def test_those_who_failed_together_are_told_different_times() -> None:
    failure, random = failures.of_status(429, b""), Random(1)
    promises = {failures.retry_after_s(failure, 20 * NS, RetryConfig(), random) for _ in range(50)}
    assert len(promises) >= 8


# --------------------------------------------------------------------------- what is passed on

FROM_PROVIDER: Headers = (
    (b"content-type", b"application/json"),
    (b"x-request-id", b"req_1"),
    (b"openai-organization", b"org-secret"),
    (b"openai-project", b"proj_secret"),
    (b"x-ratelimit-remaining-tokens", b"12"),
    (b"retry-after", b"9"),
    (b"set-cookie", b"c=1"),
    (b"content-length", b"999"),
    (b"transfer-encoding", b"chunked"),
)


def test_nothing_of_our_account_is_passed_on() -> None:
    answer = answers.passed_on(200, FROM_PROVIDER, b"{}", 0, 2_000_000)
    assert dict(answer.headers) == {
        b"content-type": b"application/json",
        b"x-request-id": b"req_1",
        b"cache-control": b"no-store",
        b"x-admission-reason": b"admitted",
        b"server-timing": b"queue;dur=0.000, upstream;dur=2.000",
        b"content-length": b"2",
    }


def test_account_numbers_in_the_providers_words_are_withheld() -> None:
    body = refused_with("m", "no such model in organization org-AbCdEf123 for key sk-proj-1234567890abcdef")
    answer = answers.passed_on(404, FROM_PROVIDER, body, 0, 0)
    assert b"org-AbC" not in answer.body
    assert b"sk-proj" not in answer.body
    assert b"no such model" in answer.body
    assert json.loads(answer.body)


def test_a_completion_is_passed_on_to_the_byte() -> None:
    body = b'{"choices":[{"message":{"content":"org-AbCdEf123"}}]}'
    assert answers.passed_on(200, FROM_PROVIDER, body, 0, 0).body == body
