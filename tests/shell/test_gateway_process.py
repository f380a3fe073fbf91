"""The gateway as a process: how it starts, how it refuses to start, how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentload.gateway.__main__ import main
from gateway_scene import CHAT, STEADY, Provider, chat, gateway, provider
from process_facts import wait_until


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


def start(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    """What the command line says when it cannot start: exit code, standard output, standard error."""
    code = main(["--upstream", "http://127.0.0.1:9", "--port", "0", *options])
    said = capsys.readouterr()
    return code, said.out, said.err


# --------------------------------------------------------------------------- it does not start


def test_a_port_in_use_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = start(capsys, "--port", str(port))
    assert (code, out) == (2, "")
    assert err == f"cannot listen on 127.0.0.1:{port}: address already in use\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pools:\n  p:\n    slots: 0\n", ":3:12: pools.p.slots: must be >= 1, got 0"),
        ("policie: sfq\n", ":1:1: policie: unknown key (did you mean 'policy'?)"),
        ("tenants:\n  a: {weight: .inf}\n", ":2:15: tenants.a.weight: must be a finite number, got .inf"),
        ("server:\n  idle: 3\n", ":2:3: server.idle: unknown key (did you mean 'idle_s'?)"),
        ("[1, 2]\n", ": must be a mapping (pools, tenants, …), got a list"),
        ("policy: {\n", ":2:1: YAML syntax"),
        ("jobs:\n  tool_url: 'http://[::'\n", ":2:13: jobs.tool_url: is not a URL: invalid IPv6 URL"),
        ("jobs:\n  tool_url: tools\n", ":2:13: jobs.tool_url: must be a URL with its scheme"),
        ("jobs:\n  tool_url: 'ftp://x'\n", ":2:13: jobs.tool_url: must be a URL such as http://"),
        ("policy: fifoo\n", "no policies named 'fifoo' (did you mean 'fifo'?)"),
        (
            "tenants:\n  a: {key_env: AGENTLOAD_NO_SUCH}\n",
            "the environment variable AGENTLOAD_NO_SUCH is not set",
        ),
    ],
)
def test_a_wrong_configuration_is_said_at_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    code, _, err = start(capsys, "--config", str(path))
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--upstream", "x:1"), "--upstream x:1: must be a URL with its scheme"),
        (("--upstream", "http://[::"), "--upstream http://[::: is not a URL: invalid IPv6 URL"),
        (("--upstream", "http://x:99999"), "is not a URL: port out of range 0-65535"),
        (("--upstream", "http://x:y"), "is not a URL: port could not be cast to integer value as 'y'"),
        (("--upstream", "http://a b"), "must be a URL such as http://127.0.0.1:9000"),
        (("--upstream", "http://x/v1?a=b"), "must end with its path"),
        (("--host", "x..y"), "cannot listen on x..y:0: that is no host's name"),
    ],
)
def test_an_address_that_is_none_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], options: tuple[str, str], says: str
) -> None:
    code, _, err = start(capsys, *options)
    assert (code, err.count("\n")) == (2, 1)
    assert says in err


def test_a_missing_file_and_a_missing_key_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = start(capsys, "--config", str(tmp_path / "none.yaml"))
    assert (code, "none.yaml: cannot be read" in err) == (2, True)
    code, _, err = start(capsys, "--upstream-key-env", "AGENTLOAD_NO_SUCH")
    assert (code, "AGENTLOAD_NO_SUCH is not set" in err) == (2, True)


def test_it_imports_neither_locust_nor_gevent_nor_httpx() -> None:
    code = (
        "import sys, agentload.gateway.__main__, agentload.gateway.serve;"
        "print(sorted({'locust', 'gevent', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --------------------------------------------------------------------------- it runs


def test_keys_come_from_the_environment_and_are_never_shown(
    upstream: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.reset()
    monkeypatch.setenv("AGENTLOAD_TEST_PROVIDER_KEY", "sk-provider-secret")
    monkeypatch.setenv("AGENTLOAD_TEST_TENANT_KEY", "tenant-secret")
    config = {"tenants": {"acme": {"class": "standard", "key_env": "AGENTLOAD_TEST_TENANT_KEY"}}}
    options = ("--upstream-key-env", "AGENTLOAD_TEST_PROVIDER_KEY", "--log-level", "debug")
    with gateway(tmp_path, upstream.url, config, *options) as own:
        refused = own.http.post(CHAT, json=chat(), headers={"Authorization": "Bearer wrong"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        answered = own.http.post(CHAT, json=chat(), headers={"Authorization": "Bearer tenant-secret"})
        assert answered.status_code == 200
        shown = own.http.get("/debug/scheduler").text + own.http.get("/metrics").text + answered.text
        logged = own.child.log.read_text()
    assert "secret" not in shown + logged


def test_the_policy_can_be_chosen_on_the_command_line(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset()
    with gateway(tmp_path, upstream.url, {"policy": "sfq"}, "--policy", "fifo") as own:
        assert own.http.post(CHAT, json=chat()).status_code == 200


def test_sigterm_refuses_newcomers_and_lets_streams_finish(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 150})
    with gateway(tmp_path, upstream.url) as own, own.client(stream=True) as client:
        client.read_until(b'"content":" ')
        own.child.process.send_signal(signal.SIGTERM)
        wait_until(lambda: own.http.get("/readyz").status_code == 503)
        newcomer = own.http.post(CHAT, json=chat())
        assert newcomer.status_code == 503
        assert newcomer.headers["x-admission-reason"] == "shutting_down"
        assert int(newcomer.headers["retry-after"]) >= 1
        assert own.http.get("/healthz").status_code == 200
        assert b"[DONE]" in client.read_answer()
        assert own.child.wait(10) == 0
    assert upstream.endings() == ["completed"]


def test_a_drain_has_an_end(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 60_000})
    with (
        gateway(tmp_path, upstream.url, {"server": {"drain_s": 0.2}}) as own,
        own.client(stream=True) as client,
    ):
        client.read_until(b'"content":" ')
        own.child.process.send_signal(signal.SIGTERM)
        assert b"shutting_down" in client.read_answer()
        assert own.child.wait(10) == 0
    wait_until(lambda: upstream.endings() == ["cancelled"])


def test_a_second_interrupt_ends_it_without_a_traceback(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 60_000})
    with gateway(tmp_path, upstream.url) as own, own.client(stream=True) as client:
        client.read_until(b'"content":" ')
        own.child.process.send_signal(signal.SIGINT)
        wait_until(lambda: own.http.get("/readyz").status_code == 503)
        own.child.process.send_signal(signal.SIGINT)
        assert b"shutting_down" in client.read_answer()
        assert own.child.wait(10) == 0
        assert "Traceback" not in own.child.log.read_text()
    wait_until(lambda: upstream.endings() == ["cancelled"])


def test_it_ends_with_its_parents_pipe(upstream: Provider, tmp_path: Path) -> None:
    upstream.reset(latency=STEADY | {"inter_token_ms": 60_000})
    with gateway(tmp_path, upstream.url) as own, own.client(stream=True) as client:
        client.read_until(b'"content":" ')
        assert own.child.process.stdin is not None
        own.child.process.stdin.close()
        assert own.child.wait(10) == 0
    wait_until(lambda: upstream.endings() == ["cancelled"])
