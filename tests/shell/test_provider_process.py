"""The provider as a process: how it starts, ends, and keeps its ledger."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from fake_provider.__main__ import main
from provider_helpers import ProviderProcess, marked

PATH = "/v1/chat/completions"
QUICK = {"latency.first_token_ms": 0, "latency.inter_token_ms": 0}


def told(*arguments: str) -> str:
    """What a provider that cannot start says, having ended with code 2."""
    code, errors = ProviderProcess(*arguments).finish()
    assert code == 2
    assert errors.startswith("fake_provider: ")
    assert errors.count("\n") == 1
    return errors


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is in use: choose another" in told(f"--port={port}")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--port=70000", "--port 70000: must be from 0 to 65535"),
        ("--set=slots=0", "slots: should be greater"),
        ("--host=x..y", "cannot listen on x..y port 9000: that is no host's name"),
        ("--config=/nowhere/none.yaml", "/nowhere/none.yaml: No such file"),
        ("--set=faults=[{kind: outge}]", "no fault named 'outge' (did you mean 'outage'?)"),
        ("--set=faults=[{kind: slow}]", "faults: factor: is missing"),
        ("--ledger=/nowhere/x", "--ledger /nowhere/x: No such file"),
        (
            "--control-token-env=NO_SUCH_VARIABLE",
            "NO_SUCH_VARIABLE: that environment variable is not set",
        ),
        ("--run=-1", "--run -1: must be from 0 to 65535"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(
    argument: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert (errors.startswith("fake_provider: "), errors.count("\n")) == (True, 1)


def test_a_signal_ends_it_cleanly_with_its_ledger_written(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    with ProviderProcess(f"--ledger={file}", settings={"latency.first_token_ms": 60_000}) as process:
        body = json.dumps(marked(seq=3, stream=True)).encode()
        with socket.create_connection(("127.0.0.1", process.port), timeout=20) as connection:
            head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(body))
            connection.sendall(head + body)
            process.wait_for(lambda ledger: ledger["counts"]["in_flight"] == 1)
            process.process.send_signal(signal.SIGTERM)
            received = b""
            while data := connection.recv(65_536):
                received += data
        assert received.startswith(b"HTTP/1.1 200")
        assert b"[DONE]" not in received
        assert process.finish() == (0, "")
    (line,) = file.read_text().splitlines()
    entry = json.loads(line)
    assert (entry["seq"], entry["ending"], entry["reason"]) == (3, "cut", "shutdown")


def test_it_ends_when_its_parent_does() -> None:
    with ProviderProcess() as process:
        assert process.process.stdin is not None
        process.process.stdin.close()
        process.process.stdin = None
        assert process.finish() == (0, "")


def test_the_ledger_file_survives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    with ProviderProcess(f"--ledger={file}", settings=QUICK) as process:
        for seq in range(5):
            process.client.post(PATH, json=marked(seq=seq, output=1))
        process.wait_for(lambda ledger: ledger["ledger_file"]["written"] == 5)
        process.process.kill()
        process.finish()
    assert [json.loads(line)["seq"] for line in file.read_text().splitlines()] == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    with ProviderProcess("--ledger=/dev/full", settings=QUICK) as process:
        assert process.client.post(PATH, json=marked()).status_code == 200
        process.wait_for(lambda ledger: bool(ledger["ledger_file"]["lost"] == 1))
        assert process.client.post(PATH, json=marked()).status_code == 200
        ledger = process.wait_for(lambda ledger: bool(ledger["ledger_file"]["lost"] == 2))
        assert ledger["ledger_file"]["error"] == "/dev/full: No space left on device"
        process.process.send_signal(signal.SIGTERM)
        said = "fake_provider: ledger lines are being lost: /dev/full: No space left on device\n"
        assert process.finish() == (0, said)


def test_a_token_shuts_the_door_for_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TOKEN", "open-sesame")
    with ProviderProcess("--control-token-env=FAKE_TOKEN") as process:
        shown = ["", "Bearer other", "Bearer open-sesame"]
        answers = [process.client.get("/_fake/health", headers={"authorization": one}) for one in shown]
        assert [answer.status_code for answer in answers] == [403, 403, 200]
