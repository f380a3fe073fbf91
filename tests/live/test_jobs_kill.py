"""kill -9 of a gateway with durable jobs, again and again at random instants, while jobs come in.

What a gateway accepted must end, whatever became of it; what a tool did must be done once. The tools are the
fake provider's, and its ledger is what counts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from gateway_scene import Gateway, Provider, chat, gateway, provider
from process_facts import wait_until

pytestmark = pytest.mark.live

JOBS = "/v1/jobs"
OPEN = ("queued", "deferred", "running")


def steps(ref: int) -> list[dict[str, Any]]:
    """Two tools with a side effect each, and a chat call between them."""
    first, last = (
        {
            "tool": {
                "name": name,
                "seconds": 0.05,
                "side_effect": True,
                "payload": {"ref": f"{ref}:{name}"},
            }
        }
        for name in ("begin", "end")
    )
    return [first, {"chat": chat(max_tokens=4)}, last]


class Load(Thread):
    """Posts one job after the other until it is told to stop, each again (same key) until it is answered."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.accepted: dict[int, str] = {}
        self.url = ""
        self.refused: Counter[int] = Counter()
        self._over = Event()
        self._refs = iter(range(number * 1_000_000, (number + 1) * 1_000_000))

    def run(self) -> None:
        ref = next(self._refs)
        with httpx.Client(timeout=5) as http:
            while not self._over.is_set():
                try:
                    answer = http.post(
                        self.url + JOBS,
                        json={"steps": steps(ref)},
                        headers={"Idempotency-Key": f"job-{ref}"},
                    )
                except httpx.TransportError:
                    self._over.wait(0.01)  # it is being killed or started
                    continue
                if answer.status_code == 202:
                    self.accepted[ref] = answer.json()["id"]
                    ref = next(self._refs)
                else:
                    self.refused[answer.status_code] += 1
                    self._over.wait(0.05)

    def stop(self) -> None:
        self._over.set()
        self.join(10)


def all_ended(own: Gateway, ids: dict[int, str]) -> dict[int, dict[str, Any]]:
    """Every job as it is shown when none is open any more."""
    shown: dict[int, dict[str, Any]] = {}

    def look() -> bool:
        for ref, job in ids.items():
            if ref not in shown or shown[ref]["state"] in OPEN:
                answer = own.http.get(f"{JOBS}/{job}")
                assert answer.status_code == 200, f"a 202 was given for {job}, and it is lost"
                shown[ref] = answer.json()
        return all(one["state"] not in OPEN for one in shown.values())

    wait_until(look, timeout_s=60)
    return shown


def kill_again_and_again(folder: Path, upstream: Provider, kills: int, seed: int) -> None:
    random = Random(seed)
    config = {
        "jobs": {"store": f"sqlite:{folder / 'jobs.db'}", "max_attempts": 100, "max_queued": 100_000},
        "retry": {"base_seconds": 0.1, "max_seconds": 0.5, "max_attempts": 100},
    }
    loads = [Load(number) for number in range(3)]
    for number in range(kills + 1):
        with gateway(folder / str(number), upstream.url, config, slots=8) as own:
            for load in loads:
                load.url = str(own.http.base_url).rstrip("/")
                if not load.ident:
                    load.start()
            before = sum(len(load.accepted) for load in loads)
            wait_until(lambda: sum(len(load.accepted) for load in loads) > before)  # noqa: B023
            if number < kills:
                Event().wait(random.uniform(0.05, 0.6))
                own.child.process.kill()
                own.child.process.wait()
                continue
            for load in loads:
                load.stop()
            ids = {ref: job for load in loads for ref, job in load.accepted.items()}
            shown = all_ended(own, ids)
    judge(shown, upstream.http.get("/_fake/tools").json(), kills)


def judge(shown: dict[int, dict[str, Any]], ledger: dict[str, Any], kills: int) -> None:
    assert len(shown) >= 10 * kills
    assert Counter(one["state"] for one in shown.values()) == {"completed": len(shown)}
    effects = Counter(entry["ref"] for entry in ledger["entries"] if "effect_ns" in entry)
    assert max(effects.values()) == 1, "a tool's side effect came twice"
    for ref, one in shown.items():
        assert effects[f"{ref}:begin"] == effects[f"{ref}:end"] == 1
        assert [result["step"] for result in one["results"]] == [0, 1, 2]
        assert one["results"][0]["output"]["ref"] == f"{ref}:begin"
        assert one["deliveries"] <= 3 + one["attempts"]
        assert one["attempts"] <= kills
    # Otherwise nothing was under way when it was killed, and nothing was shown.
    assert sum(one["attempts"] for one in shown.values()) > 0
    assert ledger["counts"]["duplicates"] > 0
    keys: dict[str, set[str]] = {}
    for entry in ledger["entries"]:
        keys.setdefault(entry["ref"], set()).add(entry["key"])
    assert all(len(of_one) == 1 for of_one in keys.values())


def test_nothing_accepted_is_lost_and_nothing_is_done_twice(tmp_path: Path) -> None:
    with provider(tmp_path) as upstream:
        upstream.reset(latency={"first_token_ms": 30, "first_token_cv": 0, "inter_token_ms": 5})
        kill_again_and_again(tmp_path, upstream, 3, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_kills(tmp_path: Path) -> None:
    with provider(tmp_path) as upstream:
        upstream.reset(latency={"first_token_ms": 30, "first_token_cv": 0, "inter_token_ms": 5})
        kill_again_and_again(tmp_path, upstream, 20, 2)
