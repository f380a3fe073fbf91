"""A hundred clients that leave, one after another: in the queue, before the first byte, and in mid-stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_scene import NEVER, Gateway, Provider, RawClient, gateway, provider
from process_facts import wait_until

pytestmark = pytest.mark.live

SLOWLY = {"first_token_ms": 1, "first_token_cv": 0, "inter_token_ms": 20}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture
def own(upstream: Provider, tmp_path: Path) -> Iterator[Gateway]:
    """Two calls at a time."""
    with gateway(tmp_path, upstream.url, slots=2, tenant_slots=2) as running:
        yield running


def lag_ns(upstream: Provider, left_ns: int) -> int:
    """How long after its client the last call ended at the provider. (All clocks are this machine's.)"""
    wait_until(lambda: upstream.endings()[-1] == "cancelled")
    ended_ns = upstream.entries()[-1]["ended_ns"]
    assert isinstance(ended_ns, int)
    return ended_ns - left_ns


def test_a_hundred_departures_close_a_hundred_calls(own: Gateway, upstream: Provider) -> None:
    lags_ns: list[int] = []
    upstream.reset(latency=NEVER)
    for _ in range(34):
        client = own.client()
        own.wait_for(waiting=0, in_flight=1)
        wait_until(lambda: upstream.endings()[-1:] == ["open"])
        lags_ns.append(_leave(client, upstream))
    upstream.reset(latency=SLOWLY)
    for _ in range(33):
        client = own.client(stream=True)
        client.read_until(b"data:")
        lags_ns.append(_leave(client, upstream))
    assert upstream.endings() == ["cancelled"] * 33
    upstream.reset(latency=NEVER)
    with own.client(), own.client():
        own.wait_for(waiting=0, in_flight=2)
        for _ in range(33):
            client = own.client()
            own.wait_for(waiting=1, in_flight=2)
            client.leave()
            own.wait_for(waiting=0, in_flight=2)
        assert len(upstream.entries()) == 2, "who leaves the queue never gets there"
    own.wait_for(waiting=0, in_flight=0)
    pools = own.http.get("/debug/scheduler").json()["pools"].values()
    assert [(pool["reserved_slots"], pool["reserved_units"]) for pool in pools] == [(0, 0)]
    lags_ns.sort()
    p95_ms, most_ms = lags_ns[int(0.95 * len(lags_ns))] / 1e6, lags_ns[-1] / 1e6
    print(f"\n{len(lags_ns)} calls closed after their clients: p95 {p95_ms:.1f} ms, most {most_ms:.1f} ms")
    assert most_ms < 1_000


def _leave(client: RawClient, upstream: Provider) -> int:
    left_ns = time.monotonic_ns()
    client.leave()
    return lag_ns(upstream, left_ns)
