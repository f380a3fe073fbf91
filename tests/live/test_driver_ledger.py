"""Two witnesses: what the driver says it sent is what the provider says it got, retries included."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentload.drivers.processes import Child
from agentload.model import Outcome, Spec
from driver_scene import closed_tenant, config, driver_for, events_of, open_tenant, profile, records
from fake_provider.config import ProviderConfig

pytestmark = pytest.mark.live

RUN_ID = 99


def call(url: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


@contextmanager
def provider(folder: Path, limits: ProviderConfig) -> Generator[str]:
    (folder / "provider.json").write_text(limits.model_dump_json())
    arguments = ["-m", "fake_provider", "--port", "0", "--config", str(folder / "provider.json")]
    arguments += ["--ledger", str(folder / "provider-ledger.jsonl")]
    with Child.start("the provider", arguments, folder / "provider.log") as child:
        url = f"http://127.0.0.1:{child.wait_ready()['port']}"
        call(f"{url}/_fake/reset", {"run": RUN_ID, "config": limits.model_dump(mode="json")})
        yield url


def test_every_attempt_is_in_the_providers_ledger(tmp_path: Path) -> None:
    sizes = {"input_tokens": 24, "output_tokens": 8, "max_tokens": 16, "stream": 0.5}
    eager = Spec(kind="openai-sdk", params={"timeout_s": 20})
    chosen = profile(
        1.5,
        open_tenant("a", 40, workload=sizes, client=eager),
        open_tenant("b", 20, workload=sizes),
        closed_tenant("c", 2, think_s=0.05),
        drain_s=4.0,
    )
    limits = ProviderConfig(tokens_per_minute=40_000, bucket_s=1, slots=6)
    with provider(tmp_path, limits) as url:
        with driver_for(config(chosen, int(url.rpartition(":")[2]), tmp_path, workers=2)) as driver:
            driver.start()
            events_of(driver)
            health = driver.result()
        ledger = call(f"{url}/_fake/ledger")
    kept = records(tmp_path)
    names = [tenant.name for tenant in chosen.tenants]
    sent = sorted((r.tenant, r.seq, r.attempt) for r in kept if r.outcome is not Outcome.UNSENT)
    got = sorted((names[e["tenant"]], e["seq"], e["attempt"]) for e in ledger["entries"])
    assert sent == got
    assert health.issued == health.scheduled == sum(record.attempt == 0 for record in kept)
    assert any(record.attempt > 0 for record in kept)
    assert {r.status for r in kept if r.outcome is Outcome.REJECTED} <= {429, 503}
    answered = [record for record in kept if record.outcome is Outcome.ANSWERED]
    assert len(answered) > 20
    assert {record.own_answer for record in answered if record.tenant != "c"} == {True}
    for request in {(r.tenant, r.seq) for r in kept}:
        finals = [r.final for r in kept if (r.tenant, r.seq) == request]
        assert sorted(finals) == [False] * (len(finals) - 1) + [True]
