"""Clients that are not installed here: their numbers as the programs themselves computed them.

Each table was printed by the named version of the package, with random() = 0.5 and the clock at EPOCH_S.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentload import behaviours
from agentload.behaviours import Attempt, Behaviour
from agentload.client.http_fields import retry_after_hint
from agentload.model import Outcome, Spec
from client_formulas import ARRIVAL, Half

EPOCH_S = 1_767_225_600.0
SOON, PAST = "Thu, 01 Jan 2026 00:00:07 GMT", "Wed, 31 Dec 2025 23:59:50 GMT"


def made(kind: str, **params: Any) -> Behaviour:
    return behaviours.make(Spec(kind=kind, params=params))


def of_one_request(kind: str, **params: Any) -> Behaviour:
    return made(kind, **params).for_request(1, ARRIVAL)


def ended(number: int = 0, raw: str | None = None, ms: float | None = None, **fields: Any) -> Attempt:
    told_s = None if raw is None else retry_after_hint(raw, EPOCH_S)
    values = {"outcome": Outcome.REJECTED, "status": 429, **fields}
    return Attempt(number=number, retry_after=raw, retry_after_s=told_s, retry_after_ms=ms, **values)


def wait_s(behaviour: Behaviour, attempt: Attempt) -> float | None:
    return behaviour.retry_delay_s(attempt, Half())


LOST = {"outcome": Outcome.FAILED, "status": 0}
IMPATIENT = {"outcome": Outcome.ABANDONED, "status": 0}

# openai 6.49.0 and @anthropic-ai/sdk 1.14.0, `retryRequest`: (Retry-After, retry-after-ms) → seconds
JAVASCRIPT: list[tuple[str | None, float | None, float, float]] = [
    (None, None, 0.4375, 0.4375),
    (None, 0.0, 0.001, 0.4375),
    (None, 150.0, 0.15, 0.15),
    ("0", None, 0.001, 0.4375),
    ("-1", None, 0.001, 0.4375),
    ("0.3", None, 0.3, 0.3),
    ("0.3", 0.0, 0.3, 0.3),
    ("61", 150.0, 0.15, 0.15),
    ("61", None, 61, 61),
    ("2147483", None, 2_147_483, 2_147_483),
    ("2147484", None, 0.001, 0.4375),
    ("abc", None, 0.001, 0.4375),
    (SOON, None, 7, 7),
    (PAST, None, 0.001, 0.4375),
]


@pytest.mark.parametrize(("raw", "ms", "openai_s", "anthropic_s"), JAVASCRIPT)
def test_the_javascript_sdks(raw: str | None, ms: float | None, openai_s: float, anthropic_s: float) -> None:
    assert wait_s(made("openai-js"), ended(0, raw, ms)) == pytest.approx(openai_s)
    assert wait_s(made("anthropic-js"), ended(0, raw, ms)) == pytest.approx(anthropic_s)


@pytest.mark.parametrize("kind", ["openai-js", "anthropic-js"])
def test_the_javascript_sdks_stop_where_the_others_do(kind: str) -> None:
    assert wait_s(made(kind), ended(2)) is None
    assert wait_s(made(kind), ended(0, status=400, outcome=Outcome.FAILED)) is None
    assert wait_s(made(kind), ended(0, streamed=True)) is None
    assert wait_s(made(kind), ended(1, **LOST)) == 0.875


# ai 6.0.326, `getRetryDelayInMs`: (retries, Retry-After, retry-after-ms) → seconds
VERCEL: list[tuple[int, str | None, float | None, float]] = [
    (0, None, None, 2),
    (1, None, None, 4),
    (0, None, 150.0, 0.15),
    (0, None, 70_000.0, 2),
    (0, "0", None, 0),
    (0, "-1", None, 2),
    (0, "59.9", None, 59.9),
    (0, "60", None, 2),
    (6, "60", None, 60),
    (6, "61", None, 61),
    (0, "61", 150.0, 0.15),
    (0, "abc", None, 2),
    (0, SOON, None, 7),
]


@pytest.mark.parametrize(("number", "raw", "ms", "seconds"), VERCEL)
def test_vercel(number: int, raw: str | None, ms: float | None, seconds: float) -> None:
    assert wait_s(made("vercel", max_retries=9), ended(number, raw, ms)) == pytest.approx(seconds)


def test_vercel_gives_up_after_two_retries_and_what_its_caller_aborted() -> None:
    vercel = made("vercel")
    assert wait_s(vercel, ended(2)) is None
    assert wait_s(vercel, ended(0, **IMPATIENT)) is None
    assert wait_s(vercel, ended(0, status=400, outcome=Outcome.FAILED)) is None
    assert wait_s(vercel, ended(1, "30", **LOST)) == 4


# litellm 1.110.2, `calculate_retry_after`: (retries, Retry-After) → seconds
LITELLM: list[tuple[int, str | None, float]] = [
    (0, None, 0.875),
    (1, None, 1.375),
    (7, None, 8.375),
    (0, "1", 1.375),
    (0, "60", 60.375),
    (0, "61", 0.875),
    (0, "0", 0.875),
    (0, "0.3", 0.875),
    (0, "1.0", 0.875),
    (0, "1e1", 0.875),
    (0, " 5 ", 5.375),
    (0, SOON, 7.375),
    (0, PAST, 0.875),
    (0, "9" * 400, 0.875),
]


@pytest.mark.parametrize(("number", "raw", "seconds"), LITELLM)
def test_litellms_router(number: int, raw: str | None, seconds: float) -> None:
    router = made("litellm-router", num_retries=9)
    assert wait_s(router, ended(number, raw, 150.0)) == pytest.approx(seconds)


def test_litellms_router_gives_up_after_two_retries() -> None:
    assert wait_s(made("litellm-router"), ended(2)) is None
    assert wait_s(made("litellm-router"), ended(0, status=400, outcome=Outcome.FAILED)) is None
    assert wait_s(made("litellm-router"), ended(0, "30", **LOST)) == 0.875


def test_google_genai() -> None:
    """3.6.1: tenacity.wait_exponential_jitter(1, 60, 2, 1), five attempts, six codes."""
    genai = made("google-genai", max_attempts=20)
    assert [wait_s(genai, ended(number, "30")) for number in (0, 1, 5, 6, 12)] == [1.5, 2.5, 32.5, 60, 60]
    assert wait_s(made("google-genai"), ended(4)) is None
    retried = [s for s in range(400, 600) if wait_s(genai, ended(0, status=s, outcome=Outcome.FAILED))]
    assert retried == [408, 429, 500, 502, 503, 504]
    assert wait_s(genai, ended(0, **IMPATIENT)) == 1.5


# --------------------------------------------------------------------------- layers


def gaps_s(behaviour: Behaviour, **fields: Any) -> list[float]:
    """The waits of one request that is refused for ever."""
    waits: list[float] = []
    while (wait := wait_s(behaviour, ended(len(waits), **fields))) is not None:
        waits.append(wait)
    return waits


def test_langchain_multiplies_its_tries_with_the_sdks() -> None:
    """Measured: nine attempts at a permanent 429. langchain-core 1.8: 2^i + U(0, 1) s."""
    sdk = [0.4375, 0.875]
    assert gaps_s(of_one_request("langchain")) == [*sdk, 1.5, *sdk, 2.5, *sdk]
    assert gaps_s(of_one_request("langchain", sdk_retries=0)) == [1.5, 2.5]


def test_tenacity_makes_eighteen_attempts() -> None:
    """wait_random_exponential(1, 60): U(1, min(2^i, 60))."""
    waits = gaps_s(of_one_request("tenacity"))
    assert len(waits) == 17
    assert waits[2::3] == [1, 1.5, 2.5, 4.5, 8.5]
    assert gaps_s(of_one_request("tenacity", max_attempts=9, sdk_retries=0))[-1] == 30.5


def test_the_wrapper_takes_over_where_the_sdk_gives_up() -> None:
    """openai-python waits for nothing beyond 120 s and retries no 400; LangChain retries every exception."""
    assert gaps_s(of_one_request("langchain"), raw="121") == [1.5, 2.5]
    assert gaps_s(of_one_request("langchain"), status=400, outcome=Outcome.FAILED) == [1.5, 2.5]
    assert gaps_s(of_one_request("langchain"), raw="5")[:3] == [5, 5, 1.5]
    assert gaps_s(of_one_request("langchain"), streamed=True) == []


def test_tries_are_counted_by_request() -> None:
    shared = made("langchain")
    assert gaps_s(shared.for_request(1, ARRIVAL)) == gaps_s(shared.for_request(1, ARRIVAL))


# --------------------------------------------------------------------------- botocore


def test_botocores_waits() -> None:
    """1.44.8, `standard`: U · min(scale · 2^i, 20), scale 1 s for a 429, else 50 ms."""
    boto = made("botocore", max_attempts=20)
    assert [wait_s(boto, ended(number, "60")) for number in (0, 1, 4, 5)] == [0.5, 1, 8, 10]
    down = {"status": 503, "outcome": Outcome.REJECTED}
    assert [wait_s(boto, ended(number, **down)) for number in (0, 1, 10)] == [0.025, 0.05, 10]
    assert wait_s(boto, ended(0, **LOST)) == 0.025
    assert wait_s(made("botocore"), ended(2)) is None
    retried = [s for s in range(400, 600) if wait_s(boto, ended(0, status=s, outcome=Outcome.FAILED))]
    assert retried == [429, 500, 502, 503, 504]


def allowed(boto: Behaviour, tries: int, **fields: Any) -> int:
    """How many of so many requests get their first retry."""
    return sum(wait_s(boto.for_request(1, ARRIVAL), ended(0, **fields)) is not None for _ in range(tries))


def test_botocores_requests_share_a_quota() -> None:
    """500 in all: a retry costs 5 after a 429, else 14."""
    assert allowed(made("botocore"), 200) == 100
    assert allowed(made("botocore"), 200, **LOST) == 35


def test_answers_pay_botocores_quota_back() -> None:
    boto = made("botocore")
    retried = boto.for_request(1, ARRIVAL)
    assert wait_s(retried, ended(0, **LOST)) is not None
    assert allowed(boto, 200) == 97  # (500 - 14) // 5
    retried.heard(ended(1, outcome=Outcome.ANSWERED, status=200))  # gives its 14 back: 15 are left
    assert allowed(boto, 200) == 3
    for _ in range(5):
        boto.for_request(1, ARRIVAL).heard(ended(0, outcome=Outcome.ANSWERED, status=200))
    assert allowed(boto, 200) == 1


# --------------------------------------------------------------------------- leaving


def test_a_quitter_says_when_it_leaves_and_never_comes_back() -> None:
    assert (made("quitter").leave_after_s(), made("quitter").leave_after_tokens()) == (1.0, None)
    reader = made("quitter", leave_tokens=5)
    assert (reader.leave_after_s(), reader.leave_after_tokens()) == (None, 5)
    both = made("quitter", leave_s=3, leave_tokens=5)
    assert (both.leave_after_s(), both.leave_after_tokens()) == (3, 5)
    for attempt in (ended(0, "1"), ended(0, **LOST), ended(0, **IMPATIENT)):
        assert wait_s(both, attempt) is None
