"""LiteLLM as a client, unchanged, against the reference gateway and the provider; behind `make litellm`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentload import behaviours
from agentload.behaviours import Attempt
from agentload.client.http_fields import retry_after_hint
from agentload.model import Outcome, Spec
from client_formulas import ARRIVAL, Half
from fake_provider.marker import decode_ack
from gateway_scene import CHAT, NEVER, Gateway, Provider, gateway, provider
from process_facts import wait_until
from real_gateways import binary
from sdk_speakers import PROMPT_TOKENS, prompt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).parent.parent / "litellm_client.py"
KINDS = ("completion", "acompletion", "router")
QUICK = {"first_token_ms": 5, "first_token_cv": 0, "inter_token_ms": 1}


class LiteLLM:
    """The script, which keeps the library imported."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, kind: str, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"kind": kind, **asked}) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def call(
        self, kind: str, port: int, seq: int, *, dialect: str = "openai", **asked: Any
    ) -> dict[str, Any]:
        """One marked call; `dialect` is what LiteLLM names the provider."""
        base = f"http://127.0.0.1:{port}" + ("/v1" if dialect == "openai" else "")
        return self.ask(kind, model=f"{dialect}/m", api_base=base, content=prompt(seq, 20), **asked)


@pytest.fixture(scope="module")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteLLM]:
    python = Path(binary("litellm")).parent / "python"
    with (
        (tmp_path_factory.mktemp("litellm") / "errors").open("w") as errors,
        subprocess.Popen(
            [python, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        client = LiteLLM(process)
        assert client.ask("version")["version"]
        yield client
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="module")
def front(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("front"), upstream.url, slots=64) as running:
        yield running


def calls_of(upstream: Provider, seq: int) -> list[dict[str, Any]]:
    return [entry for entry in upstream.entries() if entry.get("seq") == seq]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", [True, False], ids=["gateway", "provider"])
def test_a_plain_call_and_a_stream(
    litellm: LiteLLM, front: Gateway, upstream: Provider, kind: str, behind: bool
) -> None:
    port = front.port if behind else int(upstream.url.rsplit(":", 1)[1])
    upstream.reset(latency=QUICK)
    said = litellm.call(kind, port, 5)
    assert said["error"] is None, said
    assert (decode_ack(said["text"]), said["usage"]) == (5, [PROMPT_TOKENS, 20])
    streamed = litellm.call(kind, port, 6, stream=True)
    assert streamed["error"] is None, streamed
    assert (decode_ack(streamed["text"]), len(streamed["text"].split())) == (6, 20)
    assert upstream.endings() == ["completed", "completed"]


def test_anthropics_messages_by_litellms_own_client(
    litellm: LiteLLM, front: Gateway, upstream: Provider
) -> None:
    upstream.reset(latency=QUICK)
    said = litellm.call("completion", front.port, 7, dialect="anthropic", max_tokens=64)
    assert said["error"] is None, said
    assert (decode_ack(said["text"]), said["usage"]) == (7, [PROMPT_TOKENS, 20])
    [entry] = upstream.entries()
    assert entry["endpoint"] == "messages"


@pytest.mark.parametrize("kind", KINDS)
def test_a_429_without_retry_after_is_tried_again_and_the_ledger_has_every_call(
    litellm: LiteLLM, upstream: Provider, kind: str
) -> None:
    """The functions leave it to the SDK inside, whose header says so; the Router begins anew each time."""
    upstream.reset(latency=QUICK)
    upstream.fault("first-n-fail", n=2, status=429)
    said = litellm.call(kind, int(upstream.url.rsplit(":", 1)[1]), 8)
    assert said["error"] is None, said
    entries = calls_of(upstream, 8)
    assert [entry["retry_header"] for entry in entries] == ([0, 0, 0] if kind == "router" else [0, 1, 2])
    assert said["retries"] == (2 if kind == "router" else None)
    if kind == "router":
        gaps_s = [(b["arrived_ns"] - a["arrived_ns"]) / 1e9 for a, b in pairwise(entries)]
        told_s = [formula_s({}, number) for number in (0, 1)]
        assert all(gap >= told for gap, told in zip(gaps_s, told_s, strict=True)), (gaps_s, told_s)


@pytest.mark.parametrize("kind", KINDS)
def test_a_429_with_retry_after_is_obeyed(litellm: LiteLLM, upstream: Provider, kind: str) -> None:
    upstream.reset(latency=QUICK, requests_per_minute=60, bucket_s=1)
    port = int(upstream.url.rsplit(":", 1)[1])
    filler = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    upstream.http.post(CHAT, json=filler, headers={"authorization": "Bearer sk-tenant"}).raise_for_status()
    said = litellm.call(kind, port, 9)
    assert said["error"] is None, said
    first, *again = calls_of(upstream, 9)
    assert first["ending"] == "throttled"
    assert [entry["ending"] for entry in again] == ["completed"]
    assert again[0]["arrived_ns"] >= first["not_before_ns"]
    assert upstream.http.get("/_fake/stats").json()["counts"]["early_retries"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_gateway_refuses_is_tried_until_there_is_room(
    litellm: LiteLLM, upstream: Provider, tmp_path: Path, kind: str
) -> None:
    narrow = {
        "slots": 1,
        "tenant_slots": 1,
        "queue": {"max_queue": 1, "tenant_max_queue": 1, "max_wait_s": 60},
    }
    with gateway(tmp_path, upstream.url, **narrow) as full:
        upstream.reset(latency=NEVER)
        with full.client() as running, full.client() as waiting, ThreadPoolExecutor(1) as pool:
            full.wait_for(waiting=1, in_flight=1)
            more = {"num_retries": 6} if kind == "router" else {"max_retries": 6}
            asked = pool.submit(litellm.call, kind, full.port, 5, **more)
            wait_until(lambda: refusals(full) >= 1)
            upstream.reset(latency=QUICK)
            running.leave()
            waiting.leave()
            said = asked.result(60)
        assert said["error"] is None, said
        [served] = calls_of(upstream, 5)
        retries = said["retries"] if kind == "router" else served["retry_header"]
        assert retries == refusals(full) >= 1


def refusals(full: Gateway) -> int:
    text = full.http.get("/metrics").text.splitlines()
    return sum(
        int(float(line.split()[-1])) for line in text if line.startswith("agentload_gateway_refused_total{")
    )


# --------------------------------------------------------------------------- the behaviour `litellm-router`


def formula_s(headers: Mapping[str, str], number: int, now_s: float = 0.0) -> float:
    """What the behaviour makes of the same refusal."""
    raw = headers.get("retry-after")
    refused = Attempt(
        number=number,
        outcome=Outcome.REJECTED,
        status=429,
        retry_after=raw,
        retry_after_s=None if raw is None else retry_after_hint(raw, now_s),
    )
    made = behaviours.make(Spec(kind="litellm-router", params={"num_retries": 9}))
    told_s = made.for_request(1, ARRIVAL).retry_delay_s(refused, Half())
    assert told_s is not None
    return told_s


@pytest.mark.parametrize("number", [0, 1, 4, 5, 8])
@pytest.mark.parametrize(
    "headers",
    [
        {}, {"retry-after": "1"}, {"retry-after": "60"}, {"retry-after": "61"}, {"retry-after": "0"},
        {"retry-after": "-1"}, {"retry-after": "0.5"}, {"retry-after": "soon"}, {"retry-after-ms": "150"},
        {"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}, {"retry-after": "Fri, 01 Jan 2010 00:00:00 GMT"},
    ],
)  # fmt: skip
def test_the_behaviour_waits_as_the_installed_router_does(
    litellm: LiteLLM, headers: dict[str, str], number: int
) -> None:
    real = litellm.ask("wait", headers=headers, number=number, num_retries=9)
    assert real["wait_s"] == pytest.approx(formula_s(headers, number, real["now_s"]))
