"""TLS to a target is verified by everybody who speaks to one: load client, probe, doctor and sampler."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agentload import profile, targets
from agentload.doctor.ask import Asker
from agentload.doctor.observed import Kind
from agentload.drivers import tls
from agentload.drivers.gauges import PageGauge
from agentload.drivers.target_probe import await_ready, chat_probe
from agentload.errors import UnreachableError, UsageError
from agentload.targets import Target
from agentload.targets._metrics import MetricsPage
from agentload.targets._tls import Trust
from certificates import authority

TESTS = Path(__file__).resolve().parent.parent
PROFILE = profile.load(profile.find("steady"), [])
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\nContent-Type: application/json\r\n\r\n{"waiting": 3}'


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("ca"))


@contextmanager
def serving(ca: Path, name: str, *, asks_client: bool = False) -> Generator[int]:
    """A TLS server with that certificate; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca / f"{name}.pem", ca / f"{name}.key")
    if asks_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca / "ca.pem")

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), plain:
            plain.settimeout(10)
            with context.wrap_socket(plain, server_side=True) as sock:
                while sock.recv(65_536):
                    sock.sendall(ANSWER)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def target_at(port: int, trust: Trust | None) -> Target:
    page = MetricsPage(url=f"https://localhost:{port}/metrics", series={"waiting": "waiting"})
    return replace(
        targets.load(f"https://localhost:{port}", {}), trust=trust, metrics=page, health="/healthz"
    )


def by_probe(port: int, trust: Trust | None) -> str:
    target = target_at(port, trust)
    return said(lambda: chat_probe(target, targets.probe_request(target, PROFILE)))


def by_health(port: int, trust: Trust | None) -> str:
    return said(lambda: await_ready(target_at(port, trust), 0.1))


def by_sampler(port: int, trust: Trust | None) -> str:
    gauge = PageGauge(target_at(port, trust))
    with closing(gauge):
        return said(lambda: gauge.read().values["waiting"])


def by_doctor(port: int, trust: Trust | None) -> str:
    seen = Asker(target_at(port, trust), PROFILE, 1).ask(Kind.CAREFUL, PROFILE.tenants[0])
    return seen.failure if seen.status == 0 and seen.failure else str(seen.status)


def by_load_client(port: int, trust: Trust | None) -> str:
    assert trust is not None
    client = [trust.client_cert, str(trust.client_key)] if trust.client_cert else []
    words = [sys.executable, str(TESTS / "tls_client.py"), str(port), "localhost", str(trust.ca), *client]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def said(do: Callable[[], object]) -> str:
    try:
        return str(do())
    except UnreachableError as error:
        [line] = error.lines
        return line


ALL = [by_probe, by_health, by_sampler, by_doctor, by_load_client]
WRONG = [
    ("good", "other-ca", "its certificate is signed by nobody who is trusted here: name its CA"),
    ("expired", "ca", "its certificate has expired"),
    ("other", "ca", "its certificate is for another name: hostname mismatch, certificate is not"),
]  # fmt: skip


@pytest.mark.parametrize("who", ALL)
@pytest.mark.parametrize(("name", "trusted", "problem"), WRONG, ids=["wrong CA", "expired", "wrong name"])
def test_who_is_not_the_target_is_said_in_one_line(
    ca: Path, who: Callable[[int, Trust | None], str], name: str, trusted: str, problem: str
) -> None:
    with serving(ca, name) as port:
        assert problem in who(port, Trust(ca=str(ca / f"{trusted}.pem")))


@pytest.mark.parametrize("who", ALL)
def test_ones_own_authority_is_trusted(ca: Path, who: Callable[[int, Trust | None], str]) -> None:
    with serving(ca, "good") as port:
        assert who(port, Trust(ca=str(ca / "ca.pem"))) in ("200", "3.0", "None")


def test_without_it_the_systems_authorities_decide(ca: Path) -> None:
    with serving(ca, "good") as port:
        assert "signed by nobody who is trusted here" in by_probe(port, None)


@pytest.mark.parametrize("who", [by_probe, by_load_client])
def test_a_client_certificate_is_shown_where_it_is_asked_for(
    ca: Path, who: Callable[[int, Trust | None], str]
) -> None:
    own = Trust(ca=str(ca / "ca.pem"), client_cert=str(ca / "client.pem"), client_key=str(ca / "client.key"))
    with serving(ca, "good", asks_client=True) as port:
        assert who(port, own) == "200"
        # Its alert may be lost with the connection, whose end comes as a reset.
        refused = who(port, Trust(ca=own.ca))
        assert any(words in refused for words in ("tls.client_cert?", "connection broke", "reset")), refused


def test_http_where_tls_is_expected(ca: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as sock:
                sock.recv(65_536)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        assert "does not speak TLS there (is it http://?)" in by_probe(listener.getsockname()[1], None)


@pytest.mark.parametrize(
    ("trust", "problem"),
    [
        (Trust(ca="none.pem"), "gw.yaml: tls.ca none.pem: cannot be read: no such file or directory"),
        (Trust(ca="good.key"), "gw.yaml: tls.ca good.key: does not hold certificates (PEM)"),
        (
            Trust(client_cert="good.pem", client_key="other.key"),
            "gw.yaml: tls.client_cert good.pem: does not hold a certificate and its key (PEM, no password)",
        ),
    ],
)
def test_files_are_looked_at_before_anything_starts(
    ca: Path, trust: Trust, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ca)
    with pytest.raises(UsageError) as raised:
        tls.check(trust, "gw.yaml")
    assert str(raised.value) == problem
    tls.check(Trust(ca="ca.pem", client_cert="client.pem", client_key="client.key"), "gw.yaml")


def by_own_users(port: int, trust: Trust) -> dict[str, str]:
    """Users of somebody's own Locust file, by their class."""
    client = [trust.client_cert, str(trust.client_key)] if trust.client_cert else []
    words = [sys.executable, str(TESTS / "own_users_tls.py"), str(port), str(trust.ca), *client]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=180)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_users_of_somebodys_own_code_verify_too_unless_they_say_otherwise(ca: Path) -> None:
    own = Trust(ca=str(ca / "ca.pem"), client_cert=str(ca / "client.pem"), client_key=str(ca / "client.key"))
    with serving(ca, "good", asks_client=True) as port:
        assert by_own_users(port, own) | {"Trusting": ""} == {
            "Fast": "200",
            "Plain": "200",
            "Trusting": "",
        }
    with serving(ca, "good") as port:
        heard = by_own_users(port, Trust(ca=str(ca / "other-ca.pem")))
        assert heard["Trusting"] == "200"
        for kind in ("Fast", "Plain"):
            assert "certificate verify failed" in heard[kind].lower()
