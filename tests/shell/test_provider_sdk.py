"""The official openai SDK, unchanged, against a live provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from fake_provider.marker import Marker, decode_ack, message
from provider_helpers import ProviderProcess

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess() as process:
        yield process


@pytest.fixture
def client(provider: ProviderProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk-test") as client:
        yield client


def begin(provider: ProviderProcess, **config: object) -> None:
    latency = {"first_token_ms": 1, "inter_token_ms": 0}
    provider.control("POST", "reset", {"run": 3, "config": {"latency": latency, **config}})


def messages(seq: int, output: int = 20) -> list[ChatCompletionMessageParam]:
    marker = Marker(run=3, tenant=1, seq=seq, attempt=0, output_tokens=output)
    return [{"role": "user", "content": message(marker, 30)}]


def test_a_plain_call(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, tokens_per_minute=60_000)
    raw = client.chat.completions.with_raw_response.create(model="gpt-x", messages=messages(5), max_tokens=12)
    answer = raw.parse()
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (30, 12)
    assert (answer.choices[0].finish_reason, answer.model) == ("length", "gpt-x")
    assert decode_ack(answer.choices[0].message.content or "") == 5
    assert raw.headers["x-ratelimit-limit-tokens"] == "60000"
    assert answer._request_id == raw.headers["x-request-id"]


def test_a_stream_with_usage(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider)
    stream = client.chat.completions.create(
        model="m", messages=messages(6), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert (decode_ack(text), len(text.split())) == (6, 20)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.completion_tokens, chunks[-1].usage.prompt_tokens) == (20, 30)
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_retries_of_the_sdk_are_the_ledgers(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, faults=[{"kind": "first-n-fail", "params": {"n": 2, "status": 503}}])
    raw = client.chat.completions.with_raw_response.create(model="m", messages=messages(7))
    ledger = provider.ledger()
    assert raw.retries_taken == 2 == ledger["counts"]["retries"]
    assert [entry["retry_header"] for entry in ledger["entries"]] == [0, 1, 2]
    assert [entry["ending"] for entry in ledger["entries"]] == ["faulted", "faulted", "completed"]


def test_the_sdk_obeys_the_promise_of_a_429(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, requests_per_minute=60, bucket_s=1)
    for seq in range(3):
        client.chat.completions.create(model="m", messages=messages(seq))
    counts, entries = provider.ledger()["counts"], provider.ledger()["entries"]
    assert counts["completed"] == 3
    assert counts["throttled"] == counts["retries"] >= 1
    assert counts["early_retries"] == 0
    assert all(entry["not_before_ns"] for entry in entries if entry["ending"] == "throttled")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "quota-exhausted"}, openai.RateLimitError),
        ({"kind": "slow-down", "params": {"retry_after_s": None}}, openai.RateLimitError),
        ({"kind": "outage"}, openai.InternalServerError),
        ({"kind": "error-rate", "params": {"rate": 1}}, openai.InternalServerError),
        ({"kind": "reset"}, openai.APIConnectionError),
        ({"kind": "key-revoked"}, openai.AuthenticationError),
    ],
)
def test_refusals_raise_the_sdks_own_errors(
    provider: ProviderProcess, client: openai.OpenAI, fault: dict[str, Any], error: type[Exception]
) -> None:
    begin(provider, faults=[fault])
    with pytest.raises(error):
        client.with_options(max_retries=0).chat.completions.create(model="m", messages=messages(1))
    assert provider.ledger()["counts"]["faulted"] == 1


def test_the_sdk_waits_for_the_end_of_an_azure_window(
    provider: ProviderProcess, client: openai.OpenAI
) -> None:
    begin(provider, policy="azure", requests_per_minute=60, bucket_s=1, retry_after="milliseconds")
    for seq in range(3):
        client.chat.completions.create(model="m", messages=messages(seq))
    ledger = provider.ledger()
    throttled = [entry for entry in ledger["entries"] if entry["ending"] == "throttled"]
    assert len(throttled) == ledger["counts"]["retries"] >= 1
    assert ledger["counts"]["early_retries"] == 0
    assert all(entry["reason"] == "requests" and entry["not_before_ns"] for entry in throttled)


def test_the_sdk_waits_for_a_date(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, requests_per_minute=60, bucket_s=1, retry_after="date")
    for seq in range(2):
        client.chat.completions.create(model="m", messages=messages(seq))
    counts = provider.ledger()["counts"]
    assert counts["throttled"] == counts["retries"] >= 1
    assert (counts["completed"], counts["early_retries"]) == (2, 0)


def test_a_429_without_a_promise_is_tried_again(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, requests_per_minute=60, bucket_s=1, retry_after="none")
    client.chat.completions.create(model="m", messages=messages(0))
    raw = client.chat.completions.with_raw_response.create(model="m", messages=messages(1))
    ledger = provider.ledger()
    assert raw.retries_taken == ledger["counts"]["retries"] == ledger["counts"]["throttled"] >= 1
    assert not any(entry.get("not_before_ns") for entry in ledger["entries"])


@pytest.mark.parametrize("kind", ["outage", "reset"])
def test_what_never_answers_is_tried_three_times(
    provider: ProviderProcess, client: openai.OpenAI, kind: str
) -> None:
    begin(provider, faults=[{"kind": kind}])
    with pytest.raises(openai.APIError):
        client.chat.completions.create(model="m", messages=messages(1))
    ledger = provider.ledger()
    assert [entry["retry_header"] for entry in ledger["entries"]] == [0, 1, 2]
    assert (ledger["counts"]["retries"], ledger["counts"]["faulted"]) == (2, 3)


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_broken_stream_raises_and_is_never_retried(
    provider: ProviderProcess, client: openai.OpenAI, kind: str
) -> None:
    latency = {"first_token_ms": 1, "inter_token_ms": 2}
    begin(provider, latency=latency, faults=[{"kind": kind, "params": {"after_tokens": 4}}])
    with pytest.raises(openai.APIConnectionError):
        list(client.chat.completions.create(model="m", messages=messages(8), stream=True))
    [entry] = provider.ledger()["entries"]
    assert (entry["ending"], entry["reason"], entry["output_tokens"]) == ("cut", kind, 4)


def test_wrong_calls_raise_the_sdks_own_errors(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, any_model=False)
    with pytest.raises(openai.BadRequestError, match="empty array"):
        client.chat.completions.create(model="m", messages=[])
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="m", messages=messages(1))


def test_an_error_inside_a_stream_is_raised_and_never_retried(
    provider: ProviderProcess, client: openai.OpenAI
) -> None:
    begin(provider, faults=[{"kind": "error-in-stream"}])
    with client.chat.completions.create(model="m", messages=messages(8), stream=True) as stream:
        received = [next(stream).choices[0].delta.content or "" for _ in range(1 + 10)]
        with pytest.raises(openai.APIError, match="overloaded"):
            next(stream)
    assert len("".join(received).split()) == 10
    assert provider.ledger()["counts"]["offered"] == 1


def test_a_cleanly_truncated_stream_raises_nothing(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, faults=[{"kind": "truncate", "params": {"clean": True}}])
    chunks = list(client.chat.completions.create(model="m", messages=messages(9), stream=True))
    assert chunks[-1].choices[0].finish_reason is None
    assert provider.ledger()["counts"]["cut"] == 1


def test_leaving_a_stream_is_seen(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, latency={"first_token_ms": 1, "inter_token_ms": 5})
    stream = client.chat.completions.create(model="m", messages=messages(10, output=60_000), stream=True)
    next(iter(stream))
    stream.close()
    ledger = provider.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 1)
    assert ledger["entries"][0]["output_tokens"] < 60_000


def test_models(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider)
    assert [model.id for model in client.models.list()] == ["fake-model"]
    assert client.models.retrieve("other").id == "other"


def test_embeddings(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider)
    answer = client.embeddings.create(model="text-embedding-3-small", input=["a b", "a b", "c"])
    first, again, other = (one.embedding for one in answer.data)
    assert (len(first), first == again, first == other) == (1_536, True, False)
    assert answer.usage.prompt_tokens == 5
    assert provider.ledger()["counts"]["unattributed"] == 1
