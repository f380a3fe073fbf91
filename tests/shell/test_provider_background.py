"""Responses in the background, as the official openai SDK begins, asks after and cancels them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from fake_provider.marker import Marker, decode_ack, message
from process_facts import wait_until
from provider_helpers import ProviderProcess

pytestmark = pytest.mark.live

QUICK = {"first_token_ms": 1, "inter_token_ms": 1}
NEVER = {"first_token_ms": 60_000, "first_token_cv": 0}


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess() as process:
        yield process


@pytest.fixture(scope="module")
def client(provider: ProviderProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk-test", max_retries=0) as client:
        yield client


def begin(provider: ProviderProcess, latency: dict[str, Any], *faults: dict[str, Any], **config: Any) -> None:
    provider.control("POST", "reset", {"run": 3, "config": {"latency": latency, "faults": faults, **config}})


def prompt(seq: int) -> str:
    return message(Marker(run=3, tenant=1, seq=seq, attempt=0, output_tokens=20), 30)


def ended(client: openai.OpenAI, name: str) -> Any:
    """The response once it has ended."""
    found: list[Any] = []

    def has_ended() -> bool:
        found.append(client.responses.retrieve(name))
        return found[-1].status not in ("queued", "in_progress")

    wait_until(has_ended)
    return found[-1]


def test_one_that_completes(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, QUICK)
    begun = client.responses.create(model="m", input=prompt(5), background=True, max_output_tokens=64)
    assert (begun.status, begun.background, begun.output, begun.usage) == ("queued", True, [], None)
    whole = ended(client, begun.id)
    assert (whole.id, whole.status, whole.background) == (begun.id, "completed", True)
    assert (decode_ack(whole.output_text), whole.usage.input_tokens, whole.usage.output_tokens) == (5, 30, 20)
    [entry] = provider.ledger()["entries"]
    assert (entry["endpoint"], entry["seq"], entry["ending"]) == ("responses", 5, "completed")
    assert "status" not in entry, "200"


def test_one_that_waits_for_a_slot_is_queued_until_it_has_one(
    provider: ProviderProcess, client: openai.OpenAI
) -> None:
    begin(provider, NEVER, slots=1, overflow="queue")
    first, second = (client.responses.create(model="m", input=prompt(n), background=True) for n in (1, 2))
    assert client.responses.retrieve(first.id).status == "in_progress"
    assert client.responses.retrieve(second.id).status == "queued"
    assert client.responses.cancel(first.id).status == "cancelled"
    wait_until(lambda: client.responses.retrieve(second.id).status == "in_progress")
    assert (
        client.responses.cancel(second.id).status == client.responses.cancel(second.id).status == "cancelled"
    )
    ledger = provider.ledger()
    assert [entry["ending"] for entry in ledger["entries"]] == ["cancelled", "cancelled"]
    assert ledger["counts"]["in_flight"] == 0


def test_one_that_has_ended_is_not_cancelled(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, QUICK)
    begun = client.responses.create(model="m", input=prompt(6), background=True)
    ended(client, begun.id)
    assert client.responses.cancel(begun.id).status == "completed"


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_call_that_breaks_is_a_response_that_failed(
    provider: ProviderProcess, client: openai.OpenAI, kind: str
) -> None:
    begin(provider, QUICK, {"kind": kind, "params": {"after_tokens": 4}})
    begun = client.responses.create(model="m", input=prompt(7), background=True)
    whole = ended(client, begun.id)
    assert (whole.status, whole.error.code, whole.output) == ("failed", "server_error", [])
    [entry] = provider.ledger()["entries"]
    assert (entry["ending"], entry["reason"], entry["output_tokens"]) == ("cut", kind, 4)


def test_a_limit_refuses_to_begin_it(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, QUICK, tokens_per_minute=600, bucket_s=2)
    client.responses.create(model="m", input="hi", background=True, max_output_tokens=16)
    with pytest.raises(openai.RateLimitError) as refused:
        client.responses.create(model="m", input="hi", background=True, max_output_tokens=16)
    assert refused.value.response.headers["retry-after"] == "2"
    assert refused.value.response.headers["x-ratelimit-limit-tokens"] == "600"
    assert [entry["ending"] for entry in provider.ledger()["entries"]].count("throttled") == 1


def test_what_is_not_kept_is_a_404(provider: ProviderProcess, client: openai.OpenAI) -> None:
    begin(provider, QUICK)
    plain = client.responses.create(model="m", input=prompt(8))
    for ask in (client.responses.retrieve, client.responses.cancel):
        with pytest.raises(openai.NotFoundError, match="not found"):
            ask(plain.id)
    assert len(provider.ledger()["entries"]) == 1, "a question is no call"


def test_the_end_of_the_program_ends_those_that_are_open() -> None:
    with ProviderProcess() as process, openai.OpenAI(base_url=f"{process.url}/v1", api_key="k") as client:
        begin(process, NEVER)
        client.responses.create(model="m", input="hi", background=True)
        assert process.ledger()["counts"]["in_flight"] == 1
        began_s = time.monotonic()
        process.process.terminate()
        assert process.process.wait(10) == 0
        assert time.monotonic() - began_s < 5
