"""The provider over real sockets: answers, callers that leave, faults, control."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import httpx
import pytest

from fake_provider.marker import decode_ack
from provider_helpers import ProviderProcess, chat, marked

MS = 1_000_000
QUICK = {"first_token_ms": 0, "first_token_cv": 0, "inter_token_ms": 0}
SLOW = {"first_token_ms": 60_000, "first_token_cv": 0}
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def running() -> Iterator[ProviderProcess]:
    """One process for the whole file."""
    with ProviderProcess() as process:
        yield process


@pytest.fixture
def quick(running: ProviderProcess) -> ProviderProcess:
    """The process at the beginning of run 0, answering at once."""
    return configured(running)


def configured(
    process: ProviderProcess, *, run: int = 0, latency: Mapping[str, float] | None = None, **config: object
) -> ProviderProcess:
    """The process at the beginning of a run with that configuration."""
    timing = QUICK if latency is None else {"first_token_cv": 0, **latency}
    process.control("POST", "reset", {"run": run, "config": {**config, "latency": timing}})
    return process


def raw_request(process: ProviderProcess, body: dict[str, object]) -> socket.socket:
    """A connection on which a chat call was sent."""
    data = json.dumps(body).encode()
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(data))
    connection = socket.create_connection(("127.0.0.1", process.port), timeout=20)
    connection.sendall(head + data)
    return connection


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65_536):
        received += data
    return received


def only_entry(ledger: dict[str, Any]) -> dict[str, Any]:
    assert len(ledger["entries"]) == 1
    entry: dict[str, Any] = ledger["entries"][0]
    return entry


# ------------------------------------------------------------------------------------------------ answers


def test_a_plain_call_is_answered_and_recorded(running: ProviderProcess) -> None:
    process = configured(running, run=4)
    body, headers = marked(tenant=7, seq=9, run=4, attempt=1, output=12), {"x-stainless-retry-count": "1"}
    answer = process.client.post(PATH, json=body, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert decode_ack(answer.json()["choices"][0]["message"]["content"]) == 9
    entry = only_entry(process.ledger())
    assert (entry["tenant"], entry["seq"], entry["attempt"], entry["output_tokens"]) == (7, 9, 1, 12)
    assert (entry["ending"], entry["retry_header"], entry["run"]) == ("completed", 1, 4)


def test_markers_of_another_run_count_as_unattributed(running: ProviderProcess) -> None:
    process = configured(running, run=5)
    process.client.post(PATH, json=marked(run=4, output=1))
    ledger = process.ledger()
    assert (ledger["counts"]["unattributed"], ledger["unattributed"][0]["calls"]) == (1, 1)
    assert "tenant" not in only_entry(ledger)


def test_tokens_are_sent_when_they_are_due_and_never_before(running: ProviderProcess) -> None:
    process = configured(running, latency={"first_token_ms": 100, "inter_token_ms": 20})
    with process.client.stream("POST", PATH, json=marked(output=15, stream=True)) as answer:
        lines = [line for line in answer.iter_lines() if line]
    ledger = process.ledger()
    entry = only_entry(ledger)
    assert lines[-1] == "data: [DONE]"
    assert len(lines) == 1 + 15 + 1 + 1
    assert entry["ended_ns"] - entry["started_ns"] >= (100 + 14 * 20) * MS
    # Each token's lateness against its own absolute due time was measured and none was early: no drift.
    assert ledger["lateness_ms"]["n"] == 15


def test_chunks_may_hold_several_tokens(running: ProviderProcess) -> None:
    process = configured(running, latency={"first_token_ms": 1, "inter_token_ms": 1, "chunk_ms": 10})
    with process.client.stream("POST", PATH, json=marked(output=31, stream=True)) as answer:
        chunks = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    sizes = [len(chunk["choices"][0]["delta"].get("content", "").split()) for chunk in chunks]
    assert sizes == [0, 1, 10, 10, 10, 0]


def test_a_pipelining_and_a_closing_client_are_served(quick: ProviderProcess) -> None:
    data = json.dumps(marked(output=2)).encode()
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (PATH.encode(), len(data))
    with socket.create_connection(("127.0.0.1", quick.port), timeout=20) as connection:
        connection.sendall((head + b"\r\n" + data) * 2 + head + b"Connection: close\r\n\r\n" + data)
        assert read_to_the_end(connection).count(b'"finish_reason":"stop"') == 3


def test_wrong_requests_and_addresses_are_counted_as_invalid(quick: ProviderProcess) -> None:
    assert quick.client.post(PATH, content=b"{").status_code == 400
    unknown = quick.client.post("/v1/moderations", json={"model": "e", "input": "x"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")
    assert quick.client.get("/favicon.ico").status_code == 404
    ledger = quick.ledger()
    assert (ledger["counts"]["offered"], ledger["counts"]["invalid"]) == (2, 2)
    assert {one["endpoint"] for one in ledger["unattributed"]} == {"chat", "moderations"}


def test_models(running: ProviderProcess) -> None:
    process = configured(running)
    assert process.client.get("/v1/models").json()["data"][0]["id"] == "fake-model"
    assert process.client.get("/v1/models/org/any").json()["id"] == "org/any"
    configured(running, any_model=False)
    assert process.client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"
    assert process.client.post(PATH, json=chat()).status_code == 404


def test_a_refusal_has_status_headers_and_body(running: ProviderProcess) -> None:
    process = configured(running, requests_per_minute=2, bucket_s=30)
    first, second = (process.client.post(PATH, json=marked(seq=seq)) for seq in range(2))
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    assert second.status_code == 429
    assert second.json()["error"]["code"] == "rate_limit_exceeded"
    refused = process.ledger()["entries"][1]
    assert (refused["ending"], refused["reason"]) == ("throttled", "requests")
    assert refused["not_before_ns"] - refused["arrived_ns"] == int(second.headers["retry-after"]) * 1000 * MS


def test_waiting_calls_take_their_turn(running: ProviderProcess) -> None:
    process = configured(running, slots=1, overflow="queue", latency={"first_token_ms": 30})
    connections = [raw_request(process, marked(seq=seq, output=1)) for seq in range(4)]
    entries = process.wait_for(lambda ledger: ledger["counts"]["completed"] == 4)["entries"]
    for connection in connections:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.close()
    assert all(after["started_ns"] >= before["ended_ns"] for before, after in pairwise(entries))


# ------------------------------------------------------------------------------------- callers that leave


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_that_leaves_is_seen_at_once(running: ProviderProcess, stream: bool) -> None:
    process = configured(running, latency=SLOW)
    connection = raw_request(process, marked(output=5, stream=stream))
    process.wait_for(lambda ledger: ledger["counts"]["in_flight"] == 1)
    connection.close()
    entry = only_entry(process.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 1))
    stats = process.control("GET", "stats")
    assert entry["ending"] == "cancelled"
    assert entry["ended_ns"] - entry["started_ns"] < 60_000 * MS
    assert (entry.get("output_tokens", 0), entry.get("status", 200)) == (0, 200 if stream else 0)
    assert (stats["in_service"], stats["counts"]["disconnects"], stats["conserved"]) == (0, 1, True)


def test_a_caller_that_leaves_in_mid_stream_is_charged_what_went_out(running: ProviderProcess) -> None:
    process = configured(running, latency={"first_token_ms": 1, "inter_token_ms": 5})
    connection = raw_request(process, marked(output=60_000, stream=True))
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    process.wait_for(lambda ledger: ledger["entries"][0].get("output_tokens", 0) >= 3)
    connection.close()
    entry = only_entry(process.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 1))
    assert 3 <= entry["output_tokens"] < 60_000


def test_a_caller_that_does_not_read_and_then_leaves_is_seen(quick: ProviderProcess) -> None:
    connection = raw_request(quick, marked(output=60_000, stream=True))
    quick.wait_for(lambda ledger: ledger["counts"]["in_flight"] == 1)
    connection.close()
    entry = only_entry(quick.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 1))
    assert entry["output_tokens"] < 60_000


def test_a_caller_that_leaves_the_queue_never_enters_service(running: ProviderProcess) -> None:
    process = configured(running, slots=1, overflow="queue", latency=SLOW)
    first, second = (raw_request(process, marked(seq=seq)) for seq in range(2))
    process.wait_for(lambda ledger: ledger["counts"]["in_flight"] == 2)
    second.close()
    entries = process.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 1)["entries"]
    assert process.control("GET", "stats")["in_service"] == 1
    first.close()
    process.wait_for(lambda ledger: ledger["counts"]["cancelled"] == 2)
    left = next(entry for entry in entries if entry["ending"] == "cancelled")
    assert "started_ns" not in left


# ----------------------------------------------------------------------------------------------- faults


def fault(process: ProviderProcess, kind: str, **params: object) -> None:
    process.control("POST", "faults", {"kind": kind, "params": params})


@pytest.mark.parametrize("params", [{}, {"after_tokens": 3}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_reset_is_a_real_one(quick: ProviderProcess, stream: bool, params: dict[str, object]) -> None:
    fault(quick, "reset", **params)
    with raw_request(quick, marked(stream=stream)) as connection, pytest.raises(ConnectionResetError):
        read_to_the_end(connection)


@pytest.mark.parametrize("stream", [False, True])
def test_a_truncated_answer_ends_inside_its_body(quick: ProviderProcess, stream: bool) -> None:
    fault(quick, "truncate")
    with pytest.raises(httpx.RemoteProtocolError):
        quick.client.post(PATH, json=marked(stream=stream))


def test_a_cleanly_truncated_answer_is_good_http(quick: ProviderProcess) -> None:
    fault(quick, "truncate", clean=True)
    stream = quick.client.post(PATH, json=marked(stream=True))
    plain = quick.client.post(PATH, json=marked())
    assert (stream.status_code, plain.status_code) == (200, 200)
    assert stream.text.endswith("\n\n")
    assert "[DONE]" not in stream.text
    with pytest.raises(json.JSONDecodeError):
        plain.json()


def test_an_error_in_the_stream_comes_with_a_200(quick: ProviderProcess) -> None:
    fault(quick, "error-in-stream")
    answer = quick.client.post(PATH, json=marked(stream=True))
    assert answer.status_code == 200
    assert '"error":{' in answer.text.split("\n\n")[-2]


def test_a_stall_ends_when_it_is_taken_away(quick: ProviderProcess) -> None:
    fault(quick, "stall")
    with raw_request(quick, marked(stream=True)) as connection:
        quick.wait_for(lambda ledger: ledger["counts"]["in_flight"] == 1)
        quick.control("DELETE", "faults")
        received = b""
        while b"[DONE]" not in received:
            received += connection.recv(65_536)
    quick.wait_for(lambda ledger: ledger["counts"]["completed"] == 1)


def test_waiting_calls_enter_service_when_a_slots_cut_ends(running: ProviderProcess) -> None:
    process = configured(running, overflow="queue")
    process.control("POST", "faults", {"kind": "slots-cut", "seconds": 0.2, "params": {"to": 0}})
    assert process.client.post(PATH, json=marked()).status_code == 200
    entry = only_entry(process.ledger())
    assert entry["started_ns"] > entry["queued_ns"]


def test_faults_are_listed_and_wrong_ones_refused(quick: ProviderProcess) -> None:
    now_ns = quick.control("GET", "health")["now_ns"]
    window = {"start_ns": now_ns + 10**12, "end_ns": now_ns + 2 * 10**12}
    asked = [{"kind": "outage", **window}, {"kind": "slow", "params": {"factor": 2}}]
    ids = quick.control("POST", "faults", asked)["ids"]
    outage, slow = quick.control("GET", "faults")["faults"]
    assert (outage["id"], outage["kind"], outage["active"], outage["end_ns"]) == (
        ids[0],
        "outage",
        False,
        window["end_ns"],
    )
    assert (slow["id"], slow["kind"], slow["active"], slow["factor"]) == (ids[1], "slow", True, 2)
    for wrong in ({"kind": "outge"}, {"kind": "slow"}, {"kind": "outage", "params": {"status": 1}}, {}, 3):
        answer = quick.client.post("/_fake/faults", json=wrong)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert quick.client.delete(f"/_fake/faults/{ids[0]}").status_code == 200
    assert quick.client.delete(f"/_fake/faults/{ids[0]}").status_code == 404


# ----------------------------------------------------------------------------------------------- control


def test_health_and_stats(quick: ProviderProcess) -> None:
    health = quick.control("GET", "health")
    assert (health["ok"], health["pid"]) == (True, quick.process.pid)
    stats = quick.control("GET", "stats")
    assert "entries" not in stats
    assert stats["conserved"]


def test_a_reset_may_bring_a_new_configuration(running: ProviderProcess) -> None:
    process = configured(running, run=8, requests_per_minute=1)
    statuses = [process.client.post(PATH, json=marked(run=8, output=1)).status_code for _ in range(2)]
    assert statuses == [200, 429]
    wrong: list[object] = [{"run": 70_000}, {}, {"run": 1, "config": {"slots": 0}}, {"run": True}, []]
    wrong.append({"run": 1, "unknown": 1})
    for body in wrong:
        assert process.client.post("/_fake/reset", json=body).status_code == 400
    assert process.control("GET", "health")["run"] == 8
