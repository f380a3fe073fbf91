"""What an official SDK's user sees of every fault, at each API, plain and streamed; and the ledger's side.

All calls are made side by side, because the SDKs wait before they try again (once, here): each is made under
a tenant of its own, and its fault hits that tenant only.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest

from fake_provider import faults
from fake_provider.marker import Marker, message
from provider_helpers import MS, NS, ProviderProcess

pytestmark = pytest.mark.live

RUN = 3
TOKENS = 20
FIRST_MS = 5
APIS = ("chat", "responses", "messages")
EVERYBODYS = {"tpm-cut", "slots-cut"}
"""Faults that cannot hit one tenant only."""
ERRORS = (openai.APIError, anthropic.APIError, httpx2.TransportError, ValueError)
SHORTEST_BACKOFF_NS = 375 * MS
"""0.5 s less a quarter: both SDKs' first wait where nothing says how long."""
Said = str | tuple[str, str, str]
"""For all APIs, or for each of APIS: the words that came, or the error that was raised."""


class Case(NamedTuple):
    """A fault and what comes of it."""

    kind: str
    params: dict[str, Any]
    plain: Said
    stream: Said
    tries: tuple[int, int]
    """How often the SDK called, plain and streamed."""


ALL = f"{TOKENS} words"
HALF = f"{TOKENS // 2} words"
OVERLOADED = ("InternalServerError 503", "InternalServerError 503", "OverloadedError 529")
TIMEOUT = ("InternalServerError 504", "InternalServerError 504", "GatewayTimeoutError 504")
SPENT = ("RateLimitError 429", "RateLimitError 429", "EnforcedSpendLimitReachedError 429")
IN_STREAM = ("APIError", f"{HALF}, then an error", "APIStatusError 200")
LOST = "APIConnectionError"
LIMITED = "RateLimitError 429"
CASES = (
    Case("stall", {}, ALL, ALL, (1, 1)),
    Case("outage", {}, OVERLOADED, OVERLOADED, (2, 2)),
    Case("outage", {"retry_after_s": 1}, OVERLOADED, OVERLOADED, (2, 2)),
    Case("error-rate", {"rate": 1}, "InternalServerError 500", "InternalServerError 500", (2, 2)),
    Case(
        "error-rate", {"rate": 1, "status": 502}, "InternalServerError 502", "InternalServerError 502", (2, 2)
    ),
    Case("error-rate", {"rate": 1, "status": 504}, TIMEOUT, TIMEOUT, (2, 2)),
    Case("first-n-fail", {"n": 1}, ALL, ALL, (2, 2)),
    Case("first-n-fail", {"n": 1, "per": "request", "status": 429}, ALL, ALL, (2, 2)),
    Case("slow-down", {"retry_after_s": 1}, LIMITED, LIMITED, (2, 2)),
    Case("slow-down", {"retry_after_s": None}, LIMITED, LIMITED, (2, 2)),
    Case("quota-exhausted", {}, SPENT, SPENT, (2, 2)),
    Case("key-revoked", {}, "AuthenticationError 401", "AuthenticationError 401", (1, 1)),
    Case("reset", {}, LOST, LOST, (2, 2)),
    Case("reset", {"after_tokens": 4}, LOST, (LOST, LOST, "ReadError"), (2, 1)),
    Case("truncate", {}, LOST, (LOST, LOST, "RemoteProtocolError"), (2, 1)),
    Case("truncate", {"clean": True}, "JSONDecodeError", HALF, (1, 1)),
    Case("error-in-stream", {}, ALL, IN_STREAM, (1, 1)),
    Case("slow", {"factor": 50}, ALL, ALL, (1, 1)),
)
WAYS = list(product(CASES, APIS, (False, True)))
"""The place of each is its tenant's number."""
NAMES = [
    "-".join((case.kind, *map(str, case.params.values()), api, "stream" if stream else "plain"))
    for case, api, stream in WAYS
]


class Users:
    """One user of each SDK; each method yields the text of an answer as it comes."""

    def __init__(self, provider: ProviderProcess, max_retries: int = 1) -> None:
        self.openai = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk", max_retries=max_retries)
        self.anthropic = anthropic.Anthropic(base_url=provider.url, api_key="sk", max_retries=max_retries)

    def ask(self, api: str, stream: bool, tenant: int) -> str:
        """One call, to its end, and what came of it."""
        prompt = message(Marker(run=RUN, tenant=tenant, seq=tenant, attempt=0, output_tokens=TOKENS), 30)
        words: list[str] = []
        try:
            for text in getattr(self, api)(prompt, stream):
                words.extend(text.split())
        except ERRORS as error:
            return f"{type(error).__name__} {getattr(error, 'status_code', '')}".strip()
        told = ", then an error" if words[-1] == "error" else ""
        return f"{len(words) - bool(told)} words{told}"

    def chat(self, prompt: str, stream: bool) -> Iterator[str]:
        messages: Any = [{"role": "user", "content": prompt}]
        if not stream:
            answer = self.openai.chat.completions.create(model="m", messages=messages)
            yield answer.choices[0].message.content or ""
            return
        for chunk in self.openai.chat.completions.create(model="m", messages=messages, stream=True):
            yield chunk.choices[0].delta.content or ""

    def responses(self, prompt: str, stream: bool) -> Iterator[str]:
        if not stream:
            yield self.openai.responses.create(model="m", input=prompt).output_text
            return
        for event in self.openai.responses.create(model="m", input=prompt, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta
            if event.type == "error":
                yield "error"

    def messages(self, prompt: str, stream: bool) -> Iterator[str]:
        messages: Any = [{"role": "user", "content": prompt}]
        if not stream:
            answer = self.anthropic.messages.create(model="m", max_tokens=64, messages=messages)
            yield "".join(block.text for block in answer.content if block.type == "text")
            return
        for event in self.anthropic.messages.create(model="m", max_tokens=64, messages=messages, stream=True):
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                yield event.delta.text


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with ProviderProcess() as process:
        yield process


def begin(provider: ProviderProcess, *faults: dict[str, Any], **config: object) -> None:
    latency = {"first_token_ms": FIRST_MS, "first_token_cv": 0, "inter_token_ms": 0}
    provider.control(
        "POST", "reset", {"run": RUN, "config": {"latency": latency, "faults": faults, **config}}
    )


class Seen(NamedTuple):
    """What came of all calls."""

    said: list[str]
    tries: list[list[dict[str, Any]]]
    """The ledger's entries of each call, in the order in which they came."""
    counts: dict[str, int]
    stalled_until_ns: int
    """When the stalls were taken away: all their calls had come by then."""


@pytest.fixture(scope="module")
def seen(provider: ProviderProcess) -> Seen:
    """Every call of WAYS, made once."""
    begin(
        provider,
        *(
            {"kind": case.kind, "params": case.params, "tenant": tenant}
            for tenant, (case, _, _) in enumerate(WAYS)
        ),
    )
    users = Users(provider)
    with ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(users.ask, api, stream, tenant) for tenant, (_, api, stream) in enumerate(WAYS)]
        stalled_until_ns = end_stalls(provider)
        said = [call.result() for call in asked]
    ledger = provider.ledger()
    tries: list[list[dict[str, Any]]] = [[] for _ in WAYS]
    for entry in ledger["entries"]:
        tries[entry["tenant"]].append(entry)
    return Seen(said, tries, ledger["counts"], stalled_until_ns)


def end_stalls(provider: ProviderProcess) -> int:
    """Takes the stalls away once every stalled call has come; the provider's time at that."""
    tenants = {tenant for tenant, (case, _, _) in enumerate(WAYS) if case.kind == "stall"}
    provider.wait_for(lambda ledger: tenants <= {entry.get("tenant") for entry in ledger["entries"]})
    listing = provider.control("GET", "faults")
    for fault in listing["faults"]:
        if fault["kind"] == "stall":
            provider.control("DELETE", f"faults/{fault['id']}")
    return int(listing["now_ns"])


@pytest.mark.parametrize("number", range(len(WAYS)), ids=NAMES)
def test_what_the_user_sees(seen: Seen, number: int) -> None:
    case, api, stream = WAYS[number]
    expected = case.stream if stream else case.plain
    assert seen.said[number] == (expected if isinstance(expected, str) else expected[APIS.index(api)])
    said = [entry["retry_header"] for entry in seen.tries[number]]
    assert said == list(range(case.tries[stream])), "the SDK's own count of its retries is the ledger's"


@pytest.mark.parametrize("number", range(len(WAYS)), ids=NAMES)
def test_when_the_sdk_comes_back(seen: Seen, number: int) -> None:
    case, _, _ = WAYS[number]
    for first, second in zip(seen.tries[number], seen.tries[number][1:], strict=False):
        told = first.get("not_before_ns")
        assert (told is not None) == bool(case.params.get("retry_after_s"))
        waited_ns = second["arrived_ns"] - first["arrived_ns"]
        assert waited_ns >= (SHORTEST_BACKOFF_NS if told is None else NS)


def test_retries_are_counted(seen: Seen) -> None:
    retries = sum(case.tries[stream] - 1 for case, _, stream in WAYS)
    assert retries == seen.counts["retries"] > 0
    assert seen.counts["offered"] == len(WAYS) + retries


@pytest.mark.parametrize("kind", ["stall", "slow"])
def test_answers_that_take_longer(seen: Seen, kind: str) -> None:
    calls = [seen.tries[n][0] for n, (case, _, _) in enumerate(WAYS) if case.kind == kind]
    assert len(calls) == 6
    for call in calls:
        if kind == "slow":
            assert call["ended_ns"] - call["arrived_ns"] >= 50 * FIRST_MS * MS
        else:
            assert call["arrived_ns"] < seen.stalled_until_ns <= call["ended_ns"]


def test_every_fault_is_looked_at() -> None:
    assert {case.kind for case in CASES} | EVERYBODYS == set(faults.kinds())


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("kind", "params", "config", "ours", "anthropics"),
    [
        ("tpm-cut", {"factor": 0.001}, {"tokens_per_minute": 6_000}, LIMITED, LIMITED),
        ("slots-cut", {"to": 0}, {}, OVERLOADED[0], OVERLOADED[2]),
    ],
)
def test_faults_that_hit_everybody(
    provider: ProviderProcess,
    api: str,
    kind: str,
    params: dict[str, Any],
    config: dict[str, Any],
    ours: str,
    anthropics: str,
) -> None:
    begin(provider, {"kind": kind, "params": params}, **config)
    assert Users(provider, max_retries=0).ask(api, False, 1) == (anthropics if api == "messages" else ours)
    provider.control("DELETE", "faults")
    assert Users(provider, max_retries=0).ask(api, False, 2) == ALL
    [refused, answered] = provider.ledger()["entries"]
    assert (refused["ending"], answered["ending"]) == ("throttled", "completed")
