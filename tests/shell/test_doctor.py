"""The doctor against gateways that are not there, shut, slow, endless, garbled, or say the key back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentload import doctor, profile, targets
from agentload.doctor import ask
from agentload.doctor.ask import Asker
from agentload.doctor.observed import Asked, Kind
from agentload.drivers import target_probe
from agentload.drivers.gauges import missing_series
from agentload.errors import ExitCode, UnreachableError
from agentload.model import Outcome
from agentload.order import Options

SECRET = "sk-very-secret"
PROFILE = profile.load(profile.find("noisy-neighbor"), [])
Script = Callable[[socket.socket], None]


def answers(*parts: bytes) -> Script:
    def script(sock: socket.socket) -> None:
        for part in parts:
            sock.sendall(part)

    return script


def without_end(head: bytes, piece: bytes) -> Script:
    """Says it again and again, until nobody listens any more."""

    def script(sock: socket.socket) -> None:
        sock.sendall(head)
        while True:
            sock.sendall(piece)

    return script


@contextmanager
def gateway(script: Script) -> Generator[int]:
    """Serves every connection with the script, in a thread each; yields its port."""

    def serve(sock: socket.socket) -> None:
        with suppress(OSError), sock:
            sock.settimeout(10)
            sock.recv(65_536)
            script(sock)

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def asked(script: Script, kind: Kind = Kind.CAREFUL) -> Asked:
    with gateway(script) as port:
        target = targets.load(f"http://127.0.0.1:{port}", {})
        return Asker(target, PROFILE, 1).ask(kind, PROFILE.tenants[0])


JSON = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"


def whole(status: bytes, body: bytes = b"{}", fields: bytes = b"") -> Script:
    return answers(JSON % (status, fields, len(body), body))


def test_a_refusal_as_it_came() -> None:
    one = asked(whole(b"429 Too Many Requests", b'{"error":{"code":"full"}}', b"Retry-After: 7\r\n"))
    assert (one.status, one.retry_after, one.reason, one.outcome) == (429, "7", "full", Outcome.REJECTED)
    assert (one.http_version, one.media_type, one.failure) == ("HTTP/1.1", "application/json", None)


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        (answers(), "closed-before-answer"),
        (answers(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "malformed-answer"),
        (answers(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "closed-mid-answer"),
        (without_end(b"HTTP/1.1 200 OK\r\n", b"X-Again: " + b"y" * 1000 + b"\r\n"), "answer-too-large"),
        (without_end(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536), "answer-too-large"),
        (without_end(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"), "malformed-answer"),
    ],
)
def test_whatever_comes_ends_and_is_named(script: Script, failure: str) -> None:
    one = asked(script)
    assert one.failure == failure
    assert one.outcome is not Outcome.ANSWERED


def test_silence_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "TIMEOUT_S", 0.2)
    over = threading.Event()

    def says_nothing(sock: socket.socket) -> None:
        over.wait(5)

    one = asked(says_nothing)
    over.set()
    assert one.status == 0
    assert one.failure is not None


def test_what_comes_in_drops_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "TIMEOUT_S", 0.3)
    over = threading.Event()

    def drips(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not over.wait(0.05):
            sock.sendall(b"x")

    one = asked(drips)
    over.set()
    assert one.failure == "no whole answer in 0.3 s"


def test_a_key_that_a_gateway_says_back_is_not_shown(tmp_path: Path) -> None:
    said = SECRET.encode()
    body = b'{"error":{"message":"%s is unknown"}}' % said
    script = whole(b"401 Unauthorized", body, b"Retry-After: %s\r\n" % said)
    with gateway(script) as port:
        file = tmp_path / "gateway.yaml"
        file.write_text(
            f"base_url: http://127.0.0.1:{port}\nheaders: {{Authorization: 'Bearer {{env:GATEWAY_KEY}}'}}\n"
        )
        target = targets.load(str(file), {"GATEWAY_KEY": SECRET})
        one = Asker(target, PROFILE, 1).ask(Kind.CAREFUL, PROFILE.tenants[0])
    assert one.status == 401
    assert SECRET not in repr(one)
    assert "***" in one.body


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UnreachableError) as raised:
        doctor.run(Options(profile="noisy-neighbor", target=f"http://127.0.0.1:{port}"), 2)
    url = f"http://127.0.0.1:{port}"
    refused = "nothing listens there (connection refused): is it started, and its port right?"
    assert raised.value.lines == (f"the target gateway at {url}: {refused}",)
    with pytest.raises(UnreachableError) as of_a_run:
        target_probe.ask(target := targets.load(url, {}), targets.probe_request(target, PROFILE))
    assert of_a_run.value.lines == (f"the target gateway at {url}/v1/chat/completions: {refused}",)


def test_a_gateway_that_calls_somebody_else_is_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    with gateway(whole(b"200 OK", b'{"choices":[{"message":{"content":"hello"}}]}')) as port:
        code = doctor.run(Options(profile="noisy-neighbor", target=f"http://127.0.0.1:{port}"), 2)
    assert code == ExitCode.UNREACHABLE
    assert "answers come from somewhere else" in " ".join(capsys.readouterr().out.split())


def test_who_leaves_is_gone_soon_also_without_a_token() -> None:
    over = threading.Event()

    def says_nothing(sock: socket.socket) -> None:
        over.wait(5)

    one = asked(says_nothing, Kind.LEFT)
    over.set()
    assert one.outcome is Outcome.ABANDONED


def test_a_gateway_that_lets_nobody_in_is_to_be_mended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    body = b'{"error": {"message": "No API key provided"}}'
    with gateway(whole(b"401 Unauthorized", body)) as port:
        code = doctor.run(Options(profile="noisy-neighbor", target=f"http://127.0.0.1:{port}"), 2)
    shown = capsys.readouterr().out
    assert code == ExitCode.FAILED
    flat = " ".join(shown.split())
    assert "all 4 requests got an answer, and none was served: 4 × 401" in flat
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    assert f"nobody is served (quiet-1, quiet-2, quiet-3, flood): the target gateway at {url}: " in flat
    assert 'answered 401 ("No API key provided"): are the tenants\' keys known to it?' in flat
    assert "say `keys:` or `headers:` in a target file; `agentload init` writes one" in flat
    assert "saw no call: mend first what stands above" in flat
    assert "upstream" not in flat.partition("identity upstream")[0]
    assert "no burst is sent where nobody is served" in flat
    assert "nothing, until somebody is served" in shown
    assert "victim-latency" not in shown
    lines = shown.splitlines()
    assert lines[0] == f"http://127.0.0.1:{port}", "not filled up with spaces"
    mend = "next: mend what is marked ✗, then ask the doctor again"
    assert lines[-1] == f"noisy-neighbor: nothing is decidable yet; {mend}"


@pytest.mark.parametrize(
    ("script", "said", "code"),
    [
        (answers(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"),
         "answered 200 with HTML, not JSON: is this its API?", ExitCode.UNREACHABLE),
        (whole(b"302 Found", b"", b"Location: https://gw.internal/v1\r\n"),
         "answered 302, see https://gw.internal/v1: give the final address", ExitCode.FAILED),
        (whole(b"502 Bad Gateway"), "the gateway cannot reach its upstream: does", ExitCode.UNREACHABLE),
    ],
)  # fmt: skip
def test_where_nobody_is_served_the_doctor_says_what_a_run_would_end_with(
    script: Script, said: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    with gateway(script) as port:
        assert doctor.run(Options(profile="steady", target=f"http://127.0.0.1:{port}"), 2) == code
    flat = " ".join(capsys.readouterr().out.split())
    assert said in flat
    assert "saw no call: mend first what stands above" in flat
    assert "is the gateway's upstream" not in flat


def test_metrics_that_are_not_there_are_told_as_a_run_tells_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "gateway.yaml"
    with gateway(whole(b"404 Not Found")) as port:
        file.write_text(f"base_url: http://127.0.0.1:{port}\nmetrics: {{url: /metrics, queue_age_s: age}}\n")
        code = doctor.run(Options(profile="noisy-neighbor", target=str(file)), 2)
        with pytest.raises(UnreachableError) as raised:
            missing_series(targets.load(str(file), {}))
    assert code == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert f"✗  its own values     {raised.value.lines[0]}" in shown
    assert raised.value.lines[0].endswith("/metrics: answers 404")


def test_a_series_that_is_not_there_is_called_as_its_file_calls_it(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    with gateway(whole(b"200 OK", b'{"depth": 3}')) as port:
        metrics = "{url: /metrics, waiting: depth, queue_age_s: age}"
        file.write_text(f"base_url: http://127.0.0.1:{port}\nmetrics: {metrics}\n")
        [line] = missing_series(targets.load(str(file), {}))
    assert "/metrics holds no age (queue_age_s): " in line


def test_the_next_step_is_the_run_as_it_was_asked_about() -> None:
    options = Options(
        profile="own file.yaml", target="gateway.yaml", provider_port=9001, allow_hosts=("gw.internal",)
    )
    said = "agentload run 'own file.yaml' --target gateway.yaml --provider-port 9001 --allow-host gw.internal"
    assert doctor.next_step(options, ExitCode.PASSED) == said
    assert doctor.next_step(options, ExitCode.INCONCLUSIVE) == f"{said} (exit code 3 at best)"
