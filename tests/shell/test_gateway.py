"""The gateway over real sockets, in front of the real fake provider: answers, refusals, failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from agentload.gateway.app import build_app
from agentload.gateway.core import GatewayCore
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.upstream import Upstream
from agentload.scheduler.config import GatewayConfig
from gateway_scene import CHAT, NEVER, STEADY, Gateway, Provider, chat, gateway, provider
from process_facts import wait_until


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="module")
def wide(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Room for everybody, and short timeouts."""
    config = {"server": {"idle_s": 0.5, "first_byte_s": 1.0}, "tenants": {"acme": {"class": "standard"}}}
    with gateway(tmp_path_factory.mktemp("wide"), upstream.url, config, slots=64) as running:
        yield running


@pytest.fixture(scope="module")
def narrow(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One call at a time, and one more may wait."""
    with gateway(
        tmp_path_factory.mktemp("narrow"),
        upstream.url,
        slots=1,
        tenant_slots=1,
        queue={"max_queue": 1, "tenant_max_queue": 1},
    ) as running:
        yield running


def error_of(answer: httpx.Response) -> dict[str, Any]:
    return dict(answer.json()["error"])


# --------------------------------------------------------------------------- answers


def test_a_plain_call_is_answered_as_the_provider_answers_it(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    answer = wide.http.post(CHAT, json=chat(max_tokens=5))
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 5
    assert answer.headers["x-admission-reason"] == "admitted"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["server-timing"].startswith("queue;dur=")
    assert "upstream;dur=" in answer.headers["server-timing"]
    assert upstream.endings() == ["completed"]


def test_nothing_of_the_providers_account_reaches_a_tenant(wide: Gateway, upstream: Provider) -> None:
    upstream.reset(tokens_per_minute=1e6, requests_per_minute=1e6)
    direct = upstream.http.post(CHAT, json=chat())
    assert any(name.startswith("x-ratelimit") for name in direct.headers)
    answer = wide.http.post(CHAT, json=chat())
    leaked = [name for name in answer.headers if name.startswith(("x-ratelimit", "openai-org"))]
    assert (answer.status_code, leaked) == (200, [])


def test_the_first_token_passes_while_the_rest_is_still_to_come(wide: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 100})
    with wide.client(stream=True) as client:
        client.read_until(b'"content":" ')
        assert upstream.endings() == ["open"]
        assert b"[DONE]" in client.read_answer()
    assert upstream.endings() == ["completed"]


def test_a_stream_is_passed_on_to_the_byte_but_for_the_usage_that_only_we_asked_for(
    wide: Gateway, upstream: Provider
) -> None:
    upstream.reset()
    answer = wide.http.post(CHAT, json=chat(stream=True, max_tokens=6))
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert all(chunk["choices"] for chunk in chunks)
    asked = wide.http.post(CHAT, json={**chat(stream=True), "stream_options": {"include_usage": True}})
    assert '"completion_tokens":8' in asked.text


def test_tokens_are_charged_as_the_provider_counted_them(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    for stream in (False, True):
        wide.http.post(CHAT, json=chat(stream=stream, max_tokens=7), headers={"X-Tenant": "acme"})
    wide.wait_for(waiting=0, in_flight=0)
    metrics = wide.http.get("/metrics").text
    assert 'agentload_gateway_tenant_tokens_total{direction="output",tenant="acme"} 14.0' in metrics
    assert 'agentload_gateway_tenant_requests_total{outcome="answered",tenant="acme"} 2.0' in metrics


def test_models_are_the_providers(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    assert wide.http.get("/v1/models").json() == upstream.http.get("/v1/models").json()


def test_official_sdks_work_unchanged(wide: Gateway, upstream: Provider) -> None:
    openai = pytest.importorskip("openai")
    upstream.reset()
    with openai.OpenAI(api_key="x", base_url=f"http://127.0.0.1:{wide.port}/v1", max_retries=0) as sdk:
        messages = [{"role": "user", "content": "hi"}]
        plain = sdk.chat.completions.create(model="fake-model", messages=messages, max_tokens=4)
        assert plain.usage.completion_tokens == 4
        stream = sdk.chat.completions.create(model="fake-model", messages=messages, max_tokens=4, stream=True)
        assert len([chunk for chunk in stream if chunk.choices[0].delta.content]) == 4
        upstream.fault("truncate", clean=True)
        stream = sdk.chat.completions.create(model="fake-model", messages=messages, max_tokens=4, stream=True)
        with pytest.raises(openai.APIError):
            list(stream)
        with pytest.raises(openai.BadRequestError):
            sdk.chat.completions.create(model="fake-model", messages=[])


def test_two_requests_may_share_a_connection(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    with wide.client(stream=True) as client:
        client.read_answer()
        client.received = b""
        client.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: g\r\n\r\n")
        assert client.read_until(b"ok\n").startswith(b"HTTP/1.1 200")


# --------------------------------------------------------------------------- refusals


def test_a_full_queue_is_refused_with_a_reason_and_a_time(narrow: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=NEVER)
    with narrow.client(), narrow.client():
        narrow.wait_for(waiting=1, in_flight=1)
        answer = narrow.http.post(CHAT, json=chat())
        wait_until(lambda: upstream.endings() == ["open"])
    assert answer.status_code == 429
    assert answer.headers["x-admission-reason"] == error_of(answer)["code"]
    assert answer.headers["x-admission-reason"].endswith("_full")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["cache-control"] == "no-store"
    narrow.wait_for(waiting=0, in_flight=0)


def test_a_deadline_that_passes_in_the_queue_is_a_504(narrow: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=NEVER)
    with narrow.client():
        narrow.wait_for(waiting=0, in_flight=1)
        answer = narrow.http.post(CHAT, json=chat(), headers={"X-Deadline-Ms": "200"})
        assert answer.status_code == 504
        wait_until(lambda: upstream.endings() == ["open"])
    narrow.wait_for(waiting=0, in_flight=0)


def test_a_deadline_that_passes_during_the_call_is_a_504_and_closes_it(
    wide: Gateway, upstream: Provider
) -> None:
    upstream.reset(latency=NEVER)
    # Longer than any call before it took: the gateway learns, and would refuse what cannot end in time.
    answer = wide.http.post(CHAT, json=chat(), headers={"X-Deadline-Ms": "2500"})
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    assert answer.headers["x-should-retry"] == "false"
    wait_until(lambda: upstream.endings() == ["cancelled"])


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"model":"m"}', {}, 400),
        (json.dumps(chat()).encode(), {"X-Service-Class": "gold"}, 400),
        (json.dumps(chat()).encode(), {"X-Deadline-Ms": "soon"}, 400),
        (json.dumps(chat(max_tokens=10_000_000)).encode(), {}, 413),
        (b"x" * 9_000_000, {}, 413),
    ],
)
def test_what_can_never_be_served_is_a_4xx_and_no_429(
    wide: Gateway, upstream: Provider, body: bytes, headers: dict[str, str], status: int
) -> None:
    upstream.reset()
    answer = wide.http.post(CHAT, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["x-should-retry"] == "false"
    assert upstream.entries() == []


def test_a_method_or_path_that_is_not_there_is_no_500(wide: Gateway) -> None:
    wrong_method, nowhere = wide.http.get(CHAT), wide.http.get("/v1/nothing")
    assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "POST")
    assert nowhere.status_code == 404
    for answer, reason in ((wrong_method, "method_not_allowed"), (nowhere, "not_found")):
        assert answer.json()["error"]["code"] == answer.headers["x-admission-reason"] == reason


# --------------------------------------------------------------------------- the provider fails


def test_a_providers_limit_is_our_503_with_its_time(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(tokens_per_minute=60, bucket_s=10)
    with gateway(tmp_path, upstream.url, {"server": {"upstream_retries": {"budget": 0}}}) as own:
        assert own.http.post(CHAT, json=chat(max_tokens=10)).status_code == 200
        answer = own.http.post(CHAT, json=chat(max_tokens=10))
        assert own.queue()["counters"]["provider_refusals"] == 1
    promise_s = int(upstream.http.post(CHAT, json=chat(max_tokens=10)).headers["retry-after"])
    assert (answer.status_code, error_of(answer)["code"]) == (503, "provider_rate_limited")
    assert int(answer.headers["retry-after"]) >= promise_s
    assert "org-" not in answer.text


def test_a_refused_call_is_made_again_when_the_provider_wants_it(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(tokens_per_minute=600, bucket_s=1)
    with gateway(tmp_path, upstream.url) as own:
        for stream in (False, True, False):
            assert own.http.post(CHAT, json=chat(max_tokens=10, stream=stream)).status_code == 200
        counters = own.queue()["counters"]
    entries = upstream.entries()
    assert counters["retried"] == counters["provider_refusals"] == len(entries) - 3 >= 1
    assert not any(entry.get("early") for entry in entries)


def test_what_one_model_has_no_room_for_goes_to_its_fallback(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(bucket_s=1, model_limits={"fake-model": {"tokens_per_minute": 600}})
    models = {
        "fake-model": {"tokens_per_minute": 600, "bucket_s": 1, "fallback": "spare", "fallback_after_s": 0}
    }
    with gateway(tmp_path, upstream.url, {"upstream": {"models": models, "margin": 0}}) as own:
        answers = [own.http.post(CHAT, json=chat(max_tokens=10, stream=n > 1)) for n in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert [answer.headers.get("x-model-fallback") for answer in answers] == [None, "spare", "spare"]
    assert [entry["model"] for entry in upstream.entries()] == ["fake-model", "spare", "spare"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_cut_answer_never_looks_complete(wide: Gateway, upstream: Provider, clean: bool) -> None:
    upstream.reset()
    upstream.fault("truncate", after_tokens=2, clean=clean)
    streamed = wide.http.post(CHAT, json=chat(stream=True))
    assert streamed.status_code == 200
    assert "[DONE]" not in streamed.text
    last = streamed.text.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "upstream_truncated"
    plain = wide.http.post(CHAT, json=chat())
    assert plain.status_code == 502


def test_an_error_inside_a_stream_is_said_and_ends_it(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    upstream.fault("error-in-stream", after_tokens=2)
    streamed = wide.http.post(CHAT, json=chat(stream=True))
    assert "[DONE]" not in streamed.text
    assert '"code":"upstream_error_in_answer"' in streamed.text


def test_a_reset_before_the_first_byte_is_a_502(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    upstream.fault("reset")
    for stream in (False, True):
        answer = wide.http.post(CHAT, json=chat(stream=stream))
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_broken")


def test_a_reset_in_the_middle_is_said(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    upstream.fault("reset", after_tokens=2)
    assert "upstream_truncated" in wide.http.post(CHAT, json=chat(stream=True)).text


def test_a_stalled_stream_is_given_up(wide: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 100})
    with wide.client(stream=True) as client:
        client.read_until(b'"content":" ')
        upstream.fault("stall")
        assert b"upstream_idle_timeout" in client.read_answer()
    wait_until(lambda: upstream.endings() == ["cancelled"])


def test_a_silent_provider_is_given_up_before_the_first_byte(wide: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=NEVER)
    answer = wide.http.post(CHAT, json=chat(stream=True))
    assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_first_byte_timeout")
    wait_until(lambda: upstream.endings() == ["cancelled"])


def test_a_providers_500_is_our_502(wide: Gateway, upstream: Provider) -> None:
    upstream.reset()
    upstream.fault("first-n-fail", n=1, status=500)
    assert wide.http.post(CHAT, json=chat()).status_code == 502
    assert wide.http.post(CHAT, json=chat()).status_code == 200


def test_a_provider_that_is_not_there_is_a_503(tmp_path: Path) -> None:
    with gateway(tmp_path, "http://127.0.0.1:9") as own:
        answer = own.http.post(CHAT, json=chat())
        assert (answer.status_code, error_of(answer)["code"]) == (503, "upstream_unreachable")
        assert int(answer.headers["retry-after"]) >= 1
        assert own.http.get("/v1/models").status_code == 503
        assert own.http.get("/healthz").status_code == 200
        assert own.queue()["in_flight"] == 0


# --------------------------------------------------------------------------- clients leave


def test_a_client_that_leaves_the_queue_never_reaches_the_provider(
    narrow: Gateway, upstream: Provider
) -> None:
    upstream.reset(latency=NEVER)
    with narrow.client():
        wait_until(lambda: upstream.endings() == ["open"])
        narrow.client().leave()
        narrow.wait_for(waiting=0, in_flight=1)
        with narrow.client():
            narrow.wait_for(waiting=1, in_flight=1)
    narrow.wait_for(waiting=0, in_flight=0)
    assert upstream.endings() == ["cancelled"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_first_byte_closes_the_call(
    wide: Gateway, upstream: Provider, stream: bool
) -> None:
    upstream.reset(latency=NEVER)
    with wide.client(stream=stream):
        wait_until(lambda: upstream.endings() == ["open"])
    wait_until(lambda: upstream.endings() == ["cancelled"])
    wide.wait_for(waiting=0, in_flight=0)


def test_a_client_that_leaves_a_stream_closes_the_call(wide: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 200})
    with wide.client(stream=True) as client:
        client.read_until(b'"content":" ')
    wait_until(lambda: upstream.endings() == ["cancelled"])
    wide.wait_for(waiting=0, in_flight=0)


def test_many_that_leave_at_every_moment_leave_nothing_behind(narrow: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=STEADY)
    for number in range(40):
        client = narrow.client(stream=number % 2 == 0)
        if number % 4 == 1:
            client.read_until(b"HTTP/1.1")
        client.leave()
    narrow.wait_for(waiting=0, in_flight=0)
    assert narrow.http.post(CHAT, json=chat()).status_code == 200
    wait_until(lambda: "open" not in upstream.endings())


# --------------------------------------------------------------------------- flood


def test_health_never_queues(narrow: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=NEVER)

    async def flood() -> list[int]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=narrow.http.base_url, limits=limits, timeout=20) as client:
            sent = [asyncio.create_task(client.post(CHAT, json=chat())) for _ in range(60)]
            while narrow.queue()["waiting"] == 0:
                await asyncio.sleep(0.01)
            health = [(await client.get(path)).status_code for path in ("/healthz", "/readyz") * 10]
            answered = [task.result().status_code for task in sent if task.done()]
            for task in sent:
                task.cancel()
            await asyncio.gather(*sent, return_exceptions=True)
            assert set(answered) <= {429}
            return health

    assert asyncio.run(flood()) == [200] * 20
    narrow.wait_for(waiting=0, in_flight=0)


def test_metrics_stay_bounded_under_tenant_churn(wide: Gateway, upstream: Provider) -> None:
    upstream.reset(latency={"first_token_ms": 0, "first_token_cv": 0, "inter_token_ms": 0})
    for number in range(60):
        wide.http.post(CHAT, json=chat(max_tokens=1), headers={"X-Tenant": f"once-{number}"})
    for _ in range(40):
        wide.http.post(CHAT, json=chat(max_tokens=1), headers={"X-Tenant": "regular"})
    metrics = wide.http.get("/metrics").text
    assert "once-" not in metrics
    assert 'tenant="regular"' in metrics


def test_debug_pages_are_for_this_machine_only() -> None:
    core = GatewayCore(GatewayConfig(), GatewaySettings(), Random(1))
    app = build_app(GatewayConfig(), core, Upstream("http://127.0.0.1:9", None, core.settings))

    async def ask(peer: str) -> list[int]:
        transport = httpx.ASGITransport(app, client=(peer, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return [(await client.get(path)).status_code for path in ("/debug/queue", "/debug/scheduler")]

    assert asyncio.run(ask("192.0.2.7")) == [403, 403]
    assert asyncio.run(ask("127.0.0.1")) == [200, 200]
