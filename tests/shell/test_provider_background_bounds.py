"""What is kept of responses in the background has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from fake_provider import openai_background
from fake_provider.app import build
from fake_provider.config import ProviderConfig
from fake_provider.core import Provider
from fake_provider.host import Host
from fake_provider.transport import PEER

BODY = {"model": "m", "input": "hello", "background": True, "max_output_tokens": 16}
QUICK = {"first_token_ms": 0, "first_token_cv": 0, "inter_token_ms": 0}
NEVER = {"first_token_ms": 60_000, "first_token_cv": 0}
Play = Callable[[httpx.AsyncClient, Host], Awaitable[None]]


def play(latency: dict[str, Any], scene: Play) -> Provider:
    """The scene against a provider in this process, without sockets."""
    provider = Provider(ProviderConfig.model_validate({"latency": latency}))

    async def go() -> None:
        host = Host(provider)
        app = build(host)

        async def lent(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, PEER: None}, receive, send)

        transport = httpx.ASGITransport(app=lent)
        async with httpx.AsyncClient(transport=transport, base_url="http://provider") as client:
            await scene(client, host)
        host.stop()
        while host.peers:
            await asyncio.sleep(0)

    asyncio.run(go())
    return provider


async def begin(client: httpx.AsyncClient) -> str:
    answer = await client.post("/v1/responses", json=BODY)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def status(client: httpx.AsyncClient, name: str) -> Any:
    answer = await client.get(f"/v1/responses/{name}")
    return answer.json()["status"] if answer.status_code == 200 else answer.status_code


async def ended(client: httpx.AsyncClient, name: str) -> None:
    while await status(client, name) != "incomplete":  # 16 tokens of 64
        await asyncio.sleep(0)


def test_the_one_that_ended_first_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_background, "MOST_KEPT", 2)

    async def scene(client: httpx.AsyncClient, host: Host) -> None:
        names = []
        for _ in range(3):
            names.append(await begin(client))
            await ended(client, names[-1])
        assert [await status(client, name) for name in names] == [404, "incomplete", "incomplete"]

    assert play(QUICK, scene).ledger.counts.completed == 3


def test_while_all_are_open_no_more_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_background, "MOST_KEPT", 2)

    async def scene(client: httpx.AsyncClient, host: Host) -> None:
        names = [await begin(client), await begin(client)]
        refused = await client.post("/v1/responses", json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert [await status(client, name) for name in names] == ["in_progress", "in_progress"]
        await client.post(f"/v1/responses/{names[0]}/cancel")
        await begin(client)
        assert [await status(client, name) for name in names] == [404, "in_progress"]

    counts = play(NEVER, scene).ledger.counts
    assert (counts.offered, counts.invalid, counts.cancelled, counts.in_flight) == (4, 1, 1, 0)
    assert counts.conserved()


def test_after_ten_minutes_it_is_forgotten() -> None:
    async def scene(client: httpx.AsyncClient, host: Host) -> None:
        name = await begin(client)
        await ended(client, name)
        clock_ns = host.clock_ns
        host.clock_ns = lambda: clock_ns() + openai_background.KEPT_NS
        await begin(client)
        assert await status(client, name) == 404

    play(QUICK, scene)


def test_what_was_open_at_the_end_is_recorded_as_cut() -> None:
    async def scene(client: httpx.AsyncClient, host: Host) -> None:
        await begin(client)

    [entry] = play(NEVER, scene).ledger.entries
    assert (entry.ending, entry.reason) == ("cut", "shutdown")
