"""Budgets, limits and kept attempts over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from gateway_scene import CHAT, Gateway, chat, gateway, provider

CONFIG = {
    "budgets": {"run": {"calls": 2}},
    "retry": {"max_attempts": 2},
    "tenants": {"limited": {"requests_per_minute": 60, "burst_s": 2}},
}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("door")
    with provider(folder) as upstream, gateway(folder / "gateway", upstream.url, CONFIG, slots=8) as running:
        upstream.reset()
        yield running


def ask(door: Gateway, tenant: str = "t", **fields: str) -> httpx.Response:
    """One small request."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()} | {"x-tenant": tenant}
    return door.http.post(CHAT, json=chat(max_tokens=2), headers=headers)


def test_a_run_that_has_spent_its_budget_is_refused_without_a_promise(door: Gateway) -> None:
    assert [ask(door, x_run_id="r").status_code for _ in range(2)] == [200, 200]
    refused = ask(door, x_run_id="r")
    assert (refused.status_code, refused.headers["x-admission-reason"]) == (402, "budget_spent")
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"


def test_a_tenant_with_a_limit_sees_it_run_out(door: Gateway) -> None:
    answers = [ask(door, "limited") for _ in range(4)]
    assert answers[0].headers["ratelimit-policy"] == '"requests";q=60;w=60'
    assert answers[0].headers["ratelimit"].startswith('"requests";r=1;t=')
    assert answers[-1].status_code == 429
    assert answers[-1].json()["error"]["code"] == "tenant_over_limit"
    assert answers[-1].json()["retry_after_seconds"] == int(answers[-1].headers["retry-after"])


def test_a_date_in_the_future_is_kept_to(door: Gateway) -> None:
    later = datetime.now(UTC) + timedelta(seconds=90)
    refused = ask(door, x_not_before=later.isoformat(timespec="seconds"))
    assert refused.status_code == 429
    assert 85 <= int(refused.headers["retry-after"]) <= 90
    told = datetime.fromisoformat(refused.json()["retry"]["not_before"])
    assert abs((told - later).total_seconds()) < 5
    earlier = datetime.now(UTC) - timedelta(seconds=1)
    assert ask(door, x_not_before=earlier.isoformat(timespec="seconds")).status_code == 200


def test_attempts_are_counted_by_the_key_and_not_by_the_caller(door: Gateway) -> None:
    key = {"idempotency_key": "k", "x_deadline_ms": "1"}  # it cannot be met: the call fails at once
    first = ask(door, idempotency_key="m", x_max_attempts="1", x_attempt="1")
    assert first.headers["x-admission-reason"] == "attempts_exhausted"
    assert ask(door, **key).status_code == 504
    assert ask(door, idempotency_key="k").status_code in (200, 504)
