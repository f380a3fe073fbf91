"""The official anthropic SDK, unchanged, against a live provider."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, MessageParam, RawMessageStreamEvent

from fake_provider.marker import Marker, decode_ack, message
from provider_helpers import ProviderProcess

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess() as process:
        yield process


@pytest.fixture(scope="module")
def client(provider: ProviderProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=provider.url, api_key="sk-ant-test") as client:
        yield client


def begin(provider: ProviderProcess, *faults: dict[str, Any], **config: object) -> None:
    latency = {"first_token_ms": 1, "inter_token_ms": 0}
    provider.control("POST", "reset", {"run": 3, "config": {"latency": latency, "faults": faults, **config}})


def messages(seq: int, output: int = 20) -> list[MessageParam]:
    marker = Marker(run=3, tenant=1, seq=seq, attempt=0, output_tokens=output)
    return [{"role": "user", "content": message(marker, 30)}]


def ask(client: anthropic.Anthropic, seq: int = 1) -> Message:
    return client.messages.create(model="m", max_tokens=64, messages=messages(seq))


def stream(client: anthropic.Anthropic, seq: int = 1) -> anthropic.Stream[RawMessageStreamEvent]:
    return client.messages.create(model="m", max_tokens=64, messages=messages(seq), stream=True)


def words(events: list[RawMessageStreamEvent]) -> list[str]:
    """What the deltas said."""
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    return "".join(delta.text for delta in deltas if delta.type == "text_delta").split()


def retries(provider: ProviderProcess) -> list[int]:
    """What the SDK said of each attempt, as the ledger has it; the count must be their sum."""
    ledger = provider.ledger()
    said = [entry["retry_header"] for entry in ledger["entries"]]
    assert ledger["counts"]["retries"] == sum(1 for count in said if count)
    assert all(entry["endpoint"] == "messages" for entry in ledger["entries"])
    return said


# ------------------------------------------------------------------------------------------------- answers


def test_a_plain_call(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider)
    raw = client.messages.with_raw_response.create(model="claude-x", max_tokens=12, messages=messages(5))
    answer = raw.parse()
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 12)
    assert (answer.stop_reason, answer.model, answer.type) == ("max_tokens", "claude-x", "message")
    [block] = answer.content
    assert block.type == "text"
    assert decode_ack(block.text) == 5
    assert answer._request_id == raw.headers["request-id"]
    [entry] = provider.ledger()["entries"]
    assert (entry["endpoint"], entry["tenant"], entry["seq"], entry["ending"]) == (
        "messages",
        1,
        5,
        "completed",
    )


def test_a_stream_gathered_by_the_sdk(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider)
    with client.messages.stream(model="m", max_tokens=64, messages=messages(6)) as gathered:
        text = "".join(gathered.text_stream)
        final = gathered.get_final_message()
    assert (decode_ack(text), len(text.split())) == (6, 20)
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 30, 20)


def test_tokens_are_counted(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider)
    assert client.messages.count_tokens(model="m", messages=messages(1)).input_tokens == 30
    assert provider.ledger()["counts"]["offered"] == 0


def test_models(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider, models=["a", "b"], any_model=False)
    assert [model.id for model in client.models.list()] == ["a", "b"]
    assert client.models.retrieve("b").type == "model"
    with pytest.raises(anthropic.NotFoundError, match="model: c"):
        client.models.retrieve("c")
    assert provider.ledger()["counts"]["offered"] == 0


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "quota-exhausted"}, anthropic.RateLimitError),
        ({"kind": "slow-down", "params": {"retry_after_s": None}}, anthropic.RateLimitError),
        ({"kind": "error-rate", "params": {"rate": 1}}, anthropic.InternalServerError),
        ({"kind": "key-revoked"}, anthropic.AuthenticationError),
        ({"kind": "reset"}, anthropic.APIConnectionError),
        ({"kind": "truncate"}, anthropic.APIConnectionError),
    ],
)
def test_faults_raise_the_sdks_own_errors(
    provider: ProviderProcess, client: anthropic.Anthropic, fault: dict[str, Any], error: type[Exception]
) -> None:
    begin(provider, fault)
    with pytest.raises(error):
        ask(client.with_options(max_retries=0))
    assert retries(provider) == [0]


def test_an_outage_is_a_529_that_the_sdk_tries_again(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, {"kind": "outage"})
    with pytest.raises(anthropic.InternalServerError) as caught:
        ask(client)
    assert (caught.value.status_code, caught.value.type) == (529, "overloaded_error")
    assert retries(provider) == [0, 1, 2]
    assert {entry["status"] for entry in provider.ledger()["entries"]} == {529}


def test_resets_are_tried_again(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider, {"kind": "reset"})
    with pytest.raises(anthropic.APIConnectionError):
        ask(client.with_options(max_retries=1))
    assert retries(provider) == [0, 1]


def test_a_429_without_a_promise_is_tried_again(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, {"kind": "first-n-fail", "params": {"n": 1, "status": 429}})
    raw = client.messages.with_raw_response.create(model="m", max_tokens=64, messages=messages(7))
    assert raw.retries_taken == 1
    assert retries(provider) == [0, 1]
    assert provider.ledger()["entries"][0].get("not_before_ns") is None


def test_the_sdk_obeys_the_promise_of_a_429(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider, policy="anthropic", requests_per_minute=60, bucket_s=1)
    for seq in range(3):
        ask(client, seq)
    ledger = provider.ledger()
    throttled = [entry for entry in ledger["entries"] if entry["ending"] == "throttled"]
    assert ledger["counts"]["completed"] == 3
    assert len(throttled) == sum(retries(provider)) >= 1
    assert ledger["counts"]["early_retries"] == 0
    assert all(entry["not_before_ns"] and entry["reason"] == "requests" for entry in throttled)


def test_limits_are_told_as_anthropic_tells_them(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, policy="anthropic", input_tokens_per_minute=40_000, output_tokens_per_minute=8_000)
    raw = client.messages.with_raw_response.create(model="m", max_tokens=64, messages=messages(1))
    reset = datetime.fromisoformat(raw.headers["anthropic-ratelimit-input-tokens-reset"])
    assert abs((reset - datetime.now(UTC)).total_seconds()) < 60
    assert raw.headers["anthropic-ratelimit-tokens-limit"] == "48000"
    begin(provider, policy="anthropic", output_tokens_per_minute=600, bucket_s=1)
    ask(client)
    with pytest.raises(anthropic.RateLimitError, match="600 output tokens per minute") as caught:
        ask(client.with_options(max_retries=0))
    assert caught.value.response.headers["retry-after"] == "2"
    assert caught.value.type == "rate_limit_error"


def test_wrong_calls_raise_the_sdks_own_errors(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, any_model=False)
    with pytest.raises(anthropic.BadRequestError, match="at least one message"):
        client.messages.create(model="m", max_tokens=1, messages=[])
    with pytest.raises(anthropic.NotFoundError, match="model: m"):
        ask(client)
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        client.messages.batches.create(requests=[])
    assert provider.ledger()["counts"]["invalid"] == 3


# ------------------------------------------------------------------------------------------- broken streams


def test_an_error_inside_a_stream_is_raised_with_status_200_and_never_retried(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, {"kind": "error-in-stream"})
    got: list[RawMessageStreamEvent] = []
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as caught:
        got.extend(stream(client))
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    assert len(words(got)) == 10
    assert retries(provider) == [0]
    assert provider.ledger()["counts"]["cut"] == 1


@pytest.mark.parametrize(
    "fault",
    [{"kind": "reset", "params": {"after_tokens": 4}}, {"kind": "truncate", "params": {"after_tokens": 4}}],
    ids=["reset", "truncate"],
)
def test_a_broken_stream_raises_and_is_never_retried(
    provider: ProviderProcess, client: anthropic.Anthropic, fault: dict[str, Any]
) -> None:
    begin(provider, fault, latency={"first_token_ms": 1, "inter_token_ms": 2})
    with pytest.raises(httpx2.TransportError):
        list(stream(client))
    assert retries(provider) == [0]
    [entry] = provider.ledger()["entries"]
    assert (entry["ending"], entry["reason"], entry["output_tokens"]) == ("cut", fault["kind"], 4)


def test_a_cleanly_truncated_stream_raises_nothing(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, {"kind": "truncate", "params": {"clean": True}})
    got = list(stream(client))
    assert got[-1].type == "content_block_delta"
    assert len(words(got)) == 10
    assert provider.ledger()["counts"]["cut"] == 1


def test_a_stalled_stream_comes_whole_when_the_stall_is_over(
    provider: ProviderProcess, client: anthropic.Anthropic
) -> None:
    begin(provider, {"kind": "stall", "seconds": 0.3})
    [fault] = provider.control("GET", "faults")["faults"]
    assert len(words(list(stream(client)))) == 20
    [entry] = provider.ledger()["entries"]
    assert entry["ended_ns"] >= fault["end_ns"] > entry["arrived_ns"]


def test_leaving_a_stream_is_seen(provider: ProviderProcess, client: anthropic.Anthropic) -> None:
    begin(provider, latency={"first_token_ms": 1, "inter_token_ms": 5})
    asked = client.messages.create(
        model="m", max_tokens=20_000, messages=messages(10, output=20_000), stream=True
    )
    next(asked)
    asked.close()
    ledger = provider.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 1)
    assert ledger["entries"][0]["output_tokens"] < 20_000
