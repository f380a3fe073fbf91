"""Durable jobs over real HTTP: a gateway process, a provider process with its tools, a SQLite file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentload.gateway.__main__ import main
from gateway_scene import CHAT, STEADY, Gateway, Provider, chat, gateway, provider
from process_facts import wait_until

JOBS = "/v1/jobs"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture(scope="module")
def own(upstream: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with gateway(folder, upstream.url, None, "--jobs-db", str(folder / "jobs.db")) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(upstream: Provider) -> None:
    upstream.reset()


def ended(own: Gateway, job: str, **headers: str) -> dict[str, Any]:
    """The job, as soon as it has ended."""
    shown: dict[str, Any] = {}

    def look() -> bool:
        shown.update(own.http.get(f"{JOBS}/{job}", headers=headers).json())
        return shown["state"] in ("completed", "failed", "expired", "cancelled")

    wait_until(look)
    return shown


def tools(upstream: Provider) -> dict[str, Any]:
    return dict(upstream.http.get("/_fake/tools").json())


def tool(**payload: Any) -> dict[str, Any]:
    return {"tool": {"name": "save", "seconds": 0.01, "side_effect": True, "payload": payload}}


def test_a_run_of_chat_and_tools_is_accepted_and_completed(own: Gateway, upstream: Provider) -> None:
    steps = [{"chat": chat()}, tool(ref=1), {"chat": chat()}]
    posted = own.http.post(JOBS, json={"steps": steps}, headers={"Idempotency-Key": "one"})
    assert (posted.status_code, posted.headers["cache-control"]) == (202, "no-store")
    job = posted.json()["id"]
    assert posted.headers["location"] == f"{JOBS}/{job}"
    shown = ended(own, job)
    assert (shown["state"], shown["steps_done"], shown["attempts"]) == ("completed", 3, 0)
    assert shown["result"]["choices"][0]["message"]["content"]
    assert [result["kind"] for result in shown["results"]] == ["chat", "tool", "chat"]
    ledger = tools(upstream)
    assert (ledger["counts"]["calls"], ledger["counts"]["effects"]) == (1, 1)
    assert (ledger["entries"][0]["key"], ledger["entries"][0]["ref"]) == (f"{job}:1", "1")
    again = own.http.post(JOBS, json={"steps": steps}, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()["id"]) == (202, job)
    other = own.http.post(JOBS, json={"steps": steps[:1]}, headers={"Idempotency-Key": "one"})
    assert other.status_code == 409


def test_a_chat_call_may_ask_to_be_told_later(own: Gateway) -> None:
    posted = own.http.post(CHAT, json=chat(), headers={"Prefer": "respond-async"})
    assert (posted.status_code, posted.headers["preference-applied"]) == (202, "respond-async")
    assert ended(own, posted.json()["id"])["result"]["usage"]["completion_tokens"] == 8


def test_cancelling_closes_the_call_at_the_provider(own: Gateway, upstream: Provider) -> None:
    upstream.reset(latency=STEADY | {"first_token_ms": 60_000})
    job = own.http.post(JOBS, json={"steps": [{"chat": chat()}]}).json()["id"]
    wait_until(lambda: upstream.endings() == ["open"])
    assert own.http.get(f"{JOBS}/{job}").json()["state"] == "running"
    assert own.http.delete(f"{JOBS}/{job}").json()["state"] == "cancelled"
    wait_until(lambda: upstream.endings() == ["cancelled"])
    assert own.http.get("/debug/queue").json()["in_flight"] == 0


def test_a_hanging_tool_is_called_again_and_has_one_effect(own: Gateway, upstream: Provider) -> None:
    step = tool(ref="h", hang=1)
    step["tool"]["timeout_s"] = 0.2
    shown = ended(own, own.http.post(JOBS, json={"steps": [step]}).json()["id"])
    assert (shown["state"], shown["attempts"], shown["deliveries"]) == ("completed", 1, 2)
    counts = tools(upstream)["counts"]
    assert (counts["calls"], counts["effects"], counts["duplicates"], counts["hung"]) == (2, 1, 1, 1)


def test_a_tenant_sees_its_own_jobs_only(own: Gateway) -> None:
    job = own.http.post(JOBS, json={"steps": [tool()]}, headers={"X-Tenant": "a"}).json()["id"]
    assert own.http.get(f"{JOBS}/{job}", headers={"X-Tenant": "b"}).status_code == 404
    assert own.http.delete(f"{JOBS}/{job}", headers={"X-Tenant": "b"}).status_code == 404
    assert ended(own, job, **{"X-Tenant": "a"})["state"] == "completed"


def test_without_jobs_the_address_says_how_to_have_them(upstream: Provider, tmp_path: Path) -> None:
    with gateway(tmp_path, upstream.url) as plain:
        answer = plain.http.post(JOBS, json={"steps": [tool()]})
        assert answer.status_code == 404
        assert "--jobs-db" in answer.json()["error"]["message"]
        assert plain.http.post(CHAT, json=chat(), headers={"Prefer": "respond-async"}).status_code == 200


def test_a_terminated_gateway_gives_back_what_it_runs(upstream: Provider, tmp_path: Path) -> None:
    config = {"server": {"drain_s": 0.1}, "jobs": {"store": f"sqlite:{tmp_path / 'jobs.db'}"}}
    with gateway(tmp_path, upstream.url, config) as first:
        slow = tool(ref="s")
        slow["tool"]["seconds"] = 1.0
        job = first.http.post(JOBS, json={"steps": [slow, tool()]}).json()["id"]
        wait_until(lambda: tools(upstream)["counts"]["calls"] == 1)
        first.child.process.send_signal(signal.SIGTERM)
        assert first.child.wait(10) == 0
    with gateway(tmp_path, upstream.url, config) as second:
        shown = ended(second, job)
    assert (shown["state"], shown["attempts"]) == ("completed", 0)
    effects = [entry.get("ref") for entry in tools(upstream)["entries"] if entry.get("effect_ns")]
    assert effects.count("s") == 1


def test_a_store_that_cannot_be_written_is_a_503(upstream: Provider, tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes every write beyond it fail, as a full disk does."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    with gateway(tmp_path, upstream.url, None, "--jobs-db", str(folder / "jobs.db")) as own:
        import resource

        fits = own.http.post(JOBS, json={"steps": [tool(ref="fits")]})
        assert fits.status_code == 202
        assert ended(own, fits.json()["id"])["state"] == "completed"
        written = (folder / "jobs.db-wal").stat().st_size
        resource.prlimit(own.child.process.pid, resource.RLIMIT_FSIZE, (written, resource.RLIM_INFINITY))
        refused = own.http.post(JOBS, json={"steps": [tool(ref="full")]}, headers={"Idempotency-Key": "f"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "store_unavailable"
        assert int(refused.headers["retry-after"]) >= 1
        resource.prlimit(
            own.child.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        taken = own.http.post(JOBS, json={"steps": [tool(ref="full")]}, headers={"Idempotency-Key": "f"})
        assert taken.status_code == 202
        assert ended(own, taken.json()["id"])["state"] == "completed"
    refs = [entry["ref"] for entry in tools(upstream)["entries"]]
    assert refs == ["fits", "full"]


def test_a_store_in_use_is_one_line_and_exit_2(
    upstream: Provider, own: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = own.child.log.parent / "jobs.db"
    assert main(["--upstream", upstream.url, "--port", "0", "--jobs-db", str(database)]) == 2
    assert capsys.readouterr().err == f"jobs.store: {database}: in use by another gateway\n"
    config = tmp_path / "gateway.yaml"
    config.write_text("jobs: {lease_s: 2, heartbeat_s: 3, store: redis}\n")
    assert main(["--upstream", upstream.url, "--port", "0", "--config", str(config)]) == 2
    assert "gateway.yaml:1:43: jobs.store: must be 'memory' or 'sqlite:PATH'" in capsys.readouterr().err


def test_the_metrics_tell_of_jobs(own: Gateway) -> None:
    ended(own, own.http.post(JOBS, json={"steps": [tool()]}).json()["id"])
    text = own.http.get("/metrics").text
    assert 'agentload_gateway_jobs{state="completed"}' in text
    shown = own.http.get("/debug/jobs").json()
    assert shown["counters"]["accepted"] >= 1
    assert shown["open"] == 0
