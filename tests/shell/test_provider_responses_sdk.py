"""The official openai SDK's responses, unchanged, against a live provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from fake_provider.marker import Marker, decode_ack, message
from provider_helpers import ProviderProcess

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess() as process:
        yield process


@pytest.fixture(scope="module")
def client(provider: ProviderProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk-test") as client:
        yield client


def begin(provider: ProviderProcess, *faults: dict[str, Any], **config: object) -> None:
    latency = {"first_token_ms": 1, "inter_token_ms": 2}
    provider.control("POST", "reset", {"run": 3, "config": {"latency": latency, "faults": faults, **config}})


def prompt(seq: int) -> str:
    return message(Marker(run=3, tenant=1, seq=seq, attempt=0, output_tokens=20), 30)


def test_a_plain_call(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, tokens_per_minute=60_000)
    raw = client.responses.with_raw_response.create(model="m", input=prompt(5), max_output_tokens=64)
    answer = raw.parse()
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 20)
    assert (answer.status, decode_ack(answer.output_text)) == ("completed", 5)
    assert raw.headers["x-ratelimit-limit-tokens"] == "60000"
    [entry] = provider.ledger()["entries"]
    assert (entry["endpoint"], entry["seq"], entry["ending"]) == ("responses", 5, "completed")


def test_a_stream_gathered_by_the_sdk(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider)
    with client.responses.stream(model="m", input=prompt(6), max_output_tokens=64) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert (kinds[0], kinds[-1], kinds.count("response.output_text.delta")) == (
        "response.created",
        "response.completed",
        20,
    )
    assert (decode_ack(final.output_text), len(final.output_text.split())) == (6, 20)


def test_refusals_are_tried_again_and_counted(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, {"kind": "first-n-fail", "params": {"n": 1, "status": 429}})
    raw = client.responses.with_raw_response.create(model="m", input=prompt(7))
    ledger = provider.ledger()
    assert raw.retries_taken == 1 == ledger["counts"]["retries"]
    assert [entry["retry_header"] for entry in ledger["entries"]] == [0, 1]


def test_an_error_inside_a_stream_is_an_event_that_the_sdk_hands_on(
    provider: ProviderProcess, client: openai.OpenAI
) -> None:
    begin(provider, {"kind": "error-in-stream"})
    got = list(client.responses.create(model="m", input=prompt(8), stream=True))
    assert (got[-1].type, provider.ledger()["counts"]["offered"]) == ("error", 1)
    assert provider.ledger()["entries"][0]["reason"] == "error-in-stream"


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_broken_stream_raises_and_is_never_retried(
    provider: ProviderProcess, client: openai.OpenAI, kind: str
) -> None:
    begin(provider, {"kind": kind, "params": {"after_tokens": 4}})
    with pytest.raises(openai.APIConnectionError):
        list(client.responses.create(model="m", input=prompt(9), stream=True))
    [entry] = provider.ledger()["entries"]
    assert (entry["ending"], entry["reason"], entry["output_tokens"]) == ("cut", kind, 4)
