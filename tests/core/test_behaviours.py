"""Client behaviours: the published formulas, checked against the installed SDKs themselves."""

from __future__ import annotations

import importlib
from itertools import product
from random import Random
from typing import Any
from unittest import mock

import pytest

from agentload import behaviours
from agentload.behaviours import Attempt, Behaviour
from agentload.client.http_fields import retry_after_hint
from agentload.model import Outcome, Spec


def made(kind: str, **params: Any) -> Behaviour:
    return behaviours.make(Spec(kind=kind, params=params))


def refused(number: int = 0, **fields: Any) -> Attempt:
    values = {"outcome": Outcome.REJECTED, "status": 429, "retry_after_s": None, **fields}
    return Attempt(number=number, **values)


def delay(behaviour: Behaviour, attempt: Attempt, seed: int = 1) -> float | None:
    return behaviour.retry_delay_s(attempt, Random(seed))


def test_the_behaviours_there_are() -> None:
    assert {
        "no-retry",
        "obeys",
        "ignores",
        "hammer",
        "full-jitter",
        "openai-sdk",
        "openai-sdk-old",
        "openai-js",
        "anthropic-sdk",
        "anthropic-js",
        "langchain",
        "tenacity",
        "litellm-router",
        "vercel",
        "botocore",
        "google-genai",
        "quitter",
    } <= set(behaviours.SEAM.names())


@pytest.mark.parametrize("kind", behaviours.SEAM.names())
def test_every_behaviour_gives_up_in_the_end(kind: str) -> None:
    """On a server that never gets better, nobody tries for ever."""
    behaviour, random = made(kind), Random(1)
    for number in range(256):
        if behaviour.retry_delay_s(refused(number, retry_after_s=0.5), random) is None:
            return
    raise AssertionError("still trying after 256 attempts")


def test_no_retry_never_does() -> None:
    assert delay(made("no-retry"), refused(retry_after_s=1.0)) is None


def test_obeys_waits_exactly_and_only_when_told() -> None:
    obeys = made("obeys", max_attempts=3)
    assert delay(obeys, refused(0, retry_after_s=7.0)) == 7.0
    assert delay(obeys, refused(1, retry_after_s=7.0)) == 7.0
    assert delay(obeys, refused(2, retry_after_s=7.0)) is None
    assert delay(obeys, refused(0)) is None
    assert delay(obeys, refused(0, retry_after_s=-3.0)) == 0.0
    assert delay(obeys, refused(0, retry_after_s=2.0, retry_after_ms=100.0)) == 2.0
    assert delay(obeys, refused(0, retry_after_s=2.0, streamed=True)) is None


def test_ignores_has_its_own_gap() -> None:
    ignores = made("ignores", gap_s=0.25, max_attempts=2)
    assert delay(ignores, refused(0, retry_after_s=60.0)) == 0.25
    assert delay(ignores, refused(1)) is None
    assert delay(ignores, refused(0, outcome=Outcome.FAILED, status=500)) is None


def test_hammer_retries_everything_at_once() -> None:
    hammer = made("hammer", max_attempts=3)
    for outcome in (Outcome.REJECTED, Outcome.FAILED, Outcome.ABANDONED, Outcome.TRUNCATED):
        assert delay(hammer, refused(1, outcome=outcome, retry_after_s=60.0)) == 0.0
    assert delay(hammer, refused(2)) is None


def test_full_jitter_doubles_its_widest_wait_up_to_the_cap() -> None:
    client = made("full-jitter", base_s=2, cap_s=10, max_attempts=5)
    drawn = Random(1).random()
    waits = [delay(client, refused(number, retry_after_s=60.0)) for number in range(5)]
    assert waits == [drawn * 2, drawn * 4, drawn * 8, drawn * 10, None]


RETRY_AFTER = (
    None,
    "0",
    "-1",
    "0.3",
    "1",
    "59",
    "60",
    "61",
    "119",
    "120",
    "121",
    "9999",
    "abc",
    "nan",
    "1e400",
)
STATUSES = (400, 408, 409, 429, 500, 529)


def sdk_delay(client: Any, module: str, status: int, headers: dict[str, str], retries: int, seed: int) -> Any:
    """What the SDK itself would do: seconds, or None to give up."""
    httpx = importlib.import_module(
        "httpx2" if "httpx2" in importlib.import_module(module).__dict__ else "httpx"
    )
    options = importlib.import_module(module.replace("_base_client", "_models")).FinalRequestOptions
    response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://x"))
    with mock.patch(f"{module}.random", return_value=Random(seed).random()):
        if not client._should_retry(response):
            return None
        remaining = client.max_retries - retries
        return client._calculate_retry_timeout(remaining, options(method="post", url="/"), response.headers)


@pytest.mark.parametrize(
    ("kind", "package", "client_class"),
    [("openai-sdk", "openai", "OpenAI"), ("anthropic-sdk", "anthropic", "Anthropic")],
)
def test_an_sdk_and_its_behaviour_decide_alike(kind: str, package: str, client_class: str) -> None:
    client = getattr(importlib.import_module(package), client_class)(api_key="k", max_retries=5)
    behaviour = made(kind, max_retries=5)
    for raw, ms, should, number, status in product(
        RETRY_AFTER, (None, "150", "x"), (None, "true", "false"), (0, 4), STATUSES
    ):
        named = {"retry-after": raw, "retry-after-ms": ms, "x-should-retry": should}
        headers = {name: value for name, value in named.items() if value is not None}
        attempt = refused(
            number,
            status=status,
            outcome=Outcome.REJECTED if status in (429, 503) else Outcome.FAILED,
            retry_after_s=None if raw is None else retry_after_hint(raw, 0.0),
            retry_after_ms=150.0 if ms == "150" else None,
            should_retry=None if should is None else should == "true",
        )
        seed = number * 7 + status
        real = sdk_delay(client, f"{package}._base_client", status, headers, number, seed)
        assert delay(behaviour, attempt, seed) == (None if real is None else pytest.approx(real)), headers


def test_the_sdk_of_yesterday_comes_back_early() -> None:
    old = made("openai-sdk-old")
    assert delay(old, refused(0, retry_after_s=60.0)) == 60.0
    early = delay(old, refused(0, retry_after_s=61.0))
    assert early is not None
    assert 0.375 <= early <= 0.5


@pytest.mark.parametrize("kind", ["openai-sdk", "openai-sdk-old", "anthropic-sdk"])
class TestStainless:
    def test_backoff_doubles_up_to_eight_seconds_less_a_quarter_at_most(self, kind: str) -> None:
        behaviour = made(kind, max_retries=100)
        for number, longest in ((0, 0.5), (1, 1.0), (3, 4.0), (4, 8.0), (99, 8.0)):
            waits = [delay(behaviour, refused(number), seed) or 0.0 for seed in range(50)]
            assert all(0.75 * longest < wait <= longest for wait in waits)
            assert len(set(waits)) > 40

    def test_two_retries_by_default(self, kind: str) -> None:
        assert delay(made(kind), refused(1)) is not None
        assert delay(made(kind), refused(2)) is None
        assert made(kind).timeout_s == 600

    def test_lost_connections_and_timeouts_are_retried_without_looking_at_headers(self, kind: str) -> None:
        for outcome, status in ((Outcome.FAILED, 0), (Outcome.ABANDONED, 0), (Outcome.TRUNCATED, 200)):
            attempt = refused(0, outcome=outcome, status=status, retry_after_s=30.0)
            wait = delay(made(kind), attempt)
            assert wait is not None
            assert wait <= 0.5

    def test_a_stream_that_has_begun_is_never_retried(self, kind: str) -> None:
        attempt = refused(0, outcome=Outcome.TRUNCATED, status=200, streamed=True)
        assert delay(made(kind), attempt) is None

    def test_a_broken_200_is_not_retried(self, kind: str) -> None:
        assert delay(made(kind), refused(0, outcome=Outcome.FAILED, status=200)) is None
