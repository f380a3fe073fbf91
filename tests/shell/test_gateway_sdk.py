"""The official SDKs, unchanged, against the reference gateway with the provider behind it.

What each SDK counts as its retries must be what the gateway's /metrics and the provider's ledger say, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fake_provider.marker import decode_ack
from gateway_scene import CHAT, NEVER, Gateway, Provider, chat, gateway, provider
from process_facts import wait_until
from sdk_speakers import PROMPT_TOKENS, SPEAKERS, Said, Speaker

pytestmark = pytest.mark.live
EACH = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda one: one.endpoint)
CONFIG = {
    "budgets": {"run": {"calls": 1}},
    "server": {"idle_s": 2, "first_byte_s": 5},
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="module")
def front(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("front"), upstream.url, CONFIG, slots=64) as running:
        yield running


NARROW: dict[str, Any] = {
    "slots": 1,
    "tenant_slots": 1,
    "queue": {"max_queue": 1, "tenant_max_queue": 1, "max_wait_s": 60},
}


@pytest.fixture(scope="module")
def narrow(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One call at a time, and one more may wait."""
    with gateway(tmp_path_factory.mktemp("narrow"), upstream.url, **NARROW) as running:
        yield running


@pytest.fixture(scope="module")
def silent(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The same, but it never says when to come back."""
    options = ("--mutant", "no-retry-after")
    with gateway(tmp_path_factory.mktemp("silent"), upstream.url, None, *options, **NARROW) as running:
        yield running


class Books:
    """What the gateway's /metrics have counted since this was made."""

    def __init__(self, front: Gateway) -> None:
        self._front = front
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        totals: dict[str, float] = {}
        for family in text_string_to_metric_families(self._front.http.get("/metrics").text):
            for sample in family.samples:
                for name in (sample.name, *(f"{sample.name}:{value}" for value in sample.labels.values())):
                    totals[name] = totals.get(name, 0) + sample.value
        return totals

    def since(self, name: str) -> float:
        """A counter over all its labels, or over the series with one label's value: `ended:failed`."""
        name, _, label = name.partition(":")
        key = f"agentload_gateway_{name}_total" + (f":{label}" if label else "")
        return self._now().get(key, 0) - self._before.get(key, 0)


def begin(upstream: Provider, front: Gateway, **config: Any) -> Books:
    """A new ledger, and a gateway that dispatches: the faults before may have made it pause."""
    upstream.reset(**config)
    wait_until(lambda: "agentload_gateway_provider_paused_seconds 0.0" in front.http.get("/metrics").text)
    return Books(front)


def sdk_retries(upstream: Provider) -> list[int]:
    """What the SDK said of itself in each call that reached the provider."""
    return [entry["retry_header"] for entry in upstream.entries()]


# --------------------------------------------------------------------------- answers


@EACH
def test_a_plain_call(front: Gateway, upstream: Provider, speaker: type[Speaker]) -> None:
    books = begin(upstream, front)
    said = speaker(front.port).ask(5)
    assert (decode_ack(said.text), said.input_tokens, said.output_tokens) == (5, PROMPT_TOKENS, 20)
    [entry] = upstream.entries()
    assert (entry.get("endpoint", "chat"), entry["seq"], entry["ending"]) == (
        speaker.endpoint,
        5,
        "completed",
    )
    assert (said.retries, said.request_id) == (0, f"req_0000{entry['call']:012x}")
    charged = books.since("tenant_tokens:input"), books.since("tenant_tokens:output")
    assert (books.since("ended:completed"), charged) == (1, (PROMPT_TOKENS, 20))


@EACH
def test_a_stream_is_passed_on_and_charged_by_the_providers_count(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front)
    said = list(speaker(front.port).words(6))
    assert (decode_ack("".join(said)), len(said)) == (6, 20)
    wait_until(lambda: books.since("ended:completed") == 1)
    assert upstream.endings() == ["completed"]
    assert (books.since("tenant_tokens:input"), books.since("tenant_tokens:output")) == (PROMPT_TOKENS, 20)


@EACH
def test_the_first_words_come_while_the_rest_is_still_to_come(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    begin(upstream, front, latency={"first_token_ms": 1, "inter_token_ms": 60})
    words = speaker(front.port).words(7)
    next(words)
    assert upstream.endings() == ["open"]
    assert len(list(words)) == 19


@EACH
def test_who_leaves_a_stream_ends_the_call_at_the_provider(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front, latency={"first_token_ms": 1, "inter_token_ms": 5})
    words = speaker(front.port).words(8, output=4_000)
    assert len(list(islice(words, 3))) == 3
    words.close()  # type: ignore[attr-defined]
    wait_until(lambda: upstream.endings() == ["cancelled"])
    wait_until(lambda: books.since("ended:cancelled") == 1)
    [entry] = upstream.entries()
    assert books.since("tenant_tokens:output") <= entry["output_tokens"] + 1 < 4_000


# --------------------------------------------------------------------------- refusals of the gateway's own


def refused_until_there_is_room(
    full: Gateway, upstream: Provider, speaker: type[Speaker]
) -> tuple[Said, httpx.Response]:
    """What the SDK got in the end, and a refusal as the gateway words it. One call runs and one waits."""
    upstream.reset(latency=NEVER)
    books = Books(full)
    with full.client() as running, full.client() as waiting:
        full.wait_for(waiting=1, in_flight=1)
        refusal = full.http.post(CHAT, json=chat())
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(speaker(full.port, max_retries=8).ask, 5)
            wait_until(lambda: books.since("refused") >= 2)
            upstream.reset()
            running.leave()
            waiting.leave()
            said = asked.result(30)
    full.wait_for(waiting=0, in_flight=0)
    assert said.retries >= 1
    assert books.since("refused") == 1 + said.retries
    assert books.since("retries") == said.retries
    [served] = [entry for entry in upstream.entries() if entry.get("seq") == 5]
    assert (served["retry_header"], served["ending"]) == (said.retries, "completed")
    return said, refusal


@EACH
def test_a_429_with_retry_after_is_obeyed_until_there_is_room(
    narrow: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    began = time.monotonic()
    said, refusal = refused_until_there_is_room(narrow, upstream, speaker)
    assert refusal.status_code == 429
    assert int(refusal.headers["retry-after"]) >= 1
    assert time.monotonic() - began >= said.retries


@EACH
def test_a_429_without_retry_after_is_tried_again_by_the_sdks_own_clock(
    silent: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    _, refusal = refused_until_there_is_room(silent, upstream, speaker)
    assert refusal.status_code == 429
    assert "retry-after" not in refusal.headers


@EACH
def test_what_no_waiting_cures_is_not_tried_again(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front)
    run = speaker(front.port, **{"X-Run-Id": f"run of {speaker.endpoint}"})
    run.ask(1)
    with pytest.raises(speaker.errors.APIStatusError) as spent:
        run.ask(2)
    with pytest.raises(speaker.errors.APIStatusError) as wide:
        speaker(front.port).ask(3, max_tokens=20_000_000)
    with pytest.raises(speaker.errors.BadRequestError, match="X-Service-Class: no class 'gold'"):
        speaker(front.port, **{"X-Service-Class": "gold"}).ask(4)
    assert (spent.value.status_code, wide.value.status_code) == (402, 413)
    assert spent.value.response.headers["x-admission-reason"] == "budget_spent"
    assert [entry["seq"] for entry in upstream.entries()] == [1]
    assert books.since("retries") == 0


# --------------------------------------------------------------------------- a provider that fails


@EACH
def test_an_outage_is_a_503_that_says_when_to_come_back(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front)
    upstream.fault("outage")
    with pytest.raises(speaker.errors.InternalServerError) as caught:
        speaker(front.port, max_retries=1).ask()
    assert caught.value.status_code == 503
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert books.since("retries") == 1
    counted_calls(books, upstream)


@EACH
def test_a_reset_before_any_word_is_a_502_that_the_sdk_tries_again(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front)
    upstream.fault("reset")
    with pytest.raises(speaker.errors.InternalServerError) as caught:
        speaker(front.port, max_retries=1).ask()
    assert (caught.value.status_code, books.since("retries")) == (502, 1)
    counted_calls(books, upstream)
    assert set(upstream.endings()) == {"faulted"}


def counted_calls(books: Books, upstream: Provider) -> None:
    """Calls at the provider = requests that the gateway dispatched + calls it made again by itself."""
    dispatched, again = books.since("tenant_dispatched"), books.since("call_retries")
    entries = upstream.entries()
    assert len(entries) == dispatched + again
    assert {entry["retry_header"] for entry in entries} <= {0, 1}
    assert sum(entry["retry_header"] == 1 for entry in entries) >= 1


@EACH
@pytest.mark.parametrize(
    ("fault", "params", "reason"),
    [
        ("error-in-stream", {"after_tokens": 4}, "upstream_error_in_answer"),
        ("reset", {"after_tokens": 4}, "upstream_truncated"),
        ("truncate", {"after_tokens": 4}, "upstream_truncated"),
        ("truncate", {"after_tokens": 4, "clean": True}, "upstream_truncated"),
    ],
    ids=["error", "reset", "truncate", "clean truncate"],
)
def test_a_stream_that_breaks_raises_once_and_is_never_tried_again(
    front: Gateway,
    upstream: Provider,
    speaker: type[Speaker],
    fault: str,
    params: dict[str, Any],
    reason: str,
) -> None:
    """Even a clean early end, on which no SDK raises by itself."""
    books = begin(upstream, front)
    upstream.fault(fault, **params)
    got: list[str] = []
    with pytest.raises(speaker.errors.APIError, match="the provider"):
        got.extend(speaker(front.port).words())
    assert len(got) == 4
    assert sdk_retries(upstream) == [0]
    assert books.since(f"requests:{reason}") == 1


@EACH
def test_a_truncated_plain_answer_is_a_502_and_no_half_answer(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front)
    upstream.fault("truncate")
    with pytest.raises(speaker.errors.InternalServerError, match="ended before it was complete"):
        speaker(front.port, max_retries=0).ask()
    assert (upstream.endings(), books.since("requests:upstream_truncated")) == (["cut"], 1)


@EACH
def test_who_gives_up_waiting_ends_the_call(
    front: Gateway, upstream: Provider, speaker: type[Speaker]
) -> None:
    books = begin(upstream, front, latency=NEVER)
    client = speaker(front.port, max_retries=0)
    client.options["timeout"] = 0.3
    with pytest.raises(speaker.errors.APITimeoutError):
        client.ask()
    wait_until(lambda: upstream.endings() == ["cancelled"])
    wait_until(lambda: books.since("ended:cancelled") == 1)
