"""Our provider's control as the harness asks it: with a token, from far away, and while others ask, too."""

from __future__ import annotations

import json
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentload.drivers import probe, provider_control, provider_watch
from agentload.drivers.provider_control import (
    ProviderControl,
    ProviderTakenError,
    StrangeProviderError,
    token_of,
)
from agentload.drivers.provider_watch import ProviderWatch
from agentload.drivers.stage import Stage
from agentload.errors import AgentloadError, ProfileError, UnreachableError
from agentload.evidence.synthetic import profile
from agentload.provider_records import ledger_from_provider
from agentload.targets._tls import Trust
from another_clock import AHEAD, AHEAD_S, NO_NAMESPACES, has_time_namespaces
from delaying_proxy import delaying_proxy
from fake_provider.control_token import TOKEN_VARIABLE
from hostile_servers import says, serving
from process_facts import wait_until
from provider_helpers import ProviderProcess, marked

PATH = "/v1/chat/completions"
QUICK = {"latency.first_token_ms": 0, "latency.inter_token_ms": 0}
TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def provider() -> Generator[ProviderProcess]:
    with ProviderProcess(settings=QUICK) as process:
        yield process


@contextmanager
def answering(body: object, status: bytes = b"200 OK") -> Generator[ProviderControl]:
    """The control of what answers everything with that."""
    with (
        serving(says(json.dumps(body).encode(), status)) as server,
        control_of(f"http://127.0.0.1:{server.port}") as control,
    ):
        yield control


@contextmanager
def control_of(url: str, token: str | None = None) -> Generator[ProviderControl]:
    with probe.client() as http:
        yield ProviderControl(http, url, token)


def refusal(control: ProviderControl) -> str:
    with pytest.raises(AgentloadError) as raised:
        control.health()
    assert len(raised.value.lines) == 1
    return str(raised.value)


def test_the_token_opens_and_what_is_wrong_with_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with ProviderProcess(settings=QUICK) as process:
        with control_of(process.url, TOKEN) as control:
            assert control.health()["ok"] is True
        with control_of(process.url, "wrong-horse") as control:
            said = refusal(control)
            assert f"does not know this token: give {TOKEN_VARIABLE} the one" in said
            assert "wrong-horse" not in said
        with control_of(process.url) as control:
            assert f"put it into the environment variable {TOKEN_VARIABLE}" in refusal(control)
        assert process.client.post(PATH, json=marked()).status_code == 200, "calls are anybody's"


def test_a_token_comes_from_the_environment_and_must_fit_into_a_header() -> None:
    assert token_of({TOKEN_VARIABLE: TOKEN}) == TOKEN
    assert token_of({}) is None
    assert token_of({TOKEN_VARIABLE: ""}) is None
    with pytest.raises(ProfileError) as raised:
        token_of({TOKEN_VARIABLE: "geheim\u20ac here"})
    assert "geheim" not in str(raised.value)


def test_the_ledger_comes_in_pages_each_entry_once_and_in_order(
    provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_control, "PAGE", 4)
    with control_of(provider.url) as control:
        control.begin(9, {})
        for seq in range(10):
            provider.client.post(PATH, json=marked(run=9, seq=seq))
        provider.client.post(PATH, json=marked(run=8))
        pages: list[list[int | None]] = []
        found = control.ledger(9, lambda page: pages.append([one.get("seq") for one in page]))
    assert pages == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, None]]
    assert (found.incomplete, found.strangers, found.counts["offered"]) == (None, 1, 11)


CALL = {"call": 0, "arrived_ns": 1, "ending": "completed", "tenant": 0, "seq": 0, "attempt": 0}
STRANGE: dict[str, dict[str, Any]] = {
    "no call": {"entries": [{"x": 1}], "listed": 1},
    "an ending of another version": {"entries": [{**CALL, "ending": "moved"}], "listed": 1},
    "times that are none": {"entries": [{**CALL, "arrived_ns": "1"}], "listed": 1},
    "no end of a number": {"entries": [{**CALL, "arrived_ns": 10**30}], "listed": 1},
    "pages without end": {"entries": [CALL], "listed": 10**9},
    "calls of nobody, uncounted": {"unattributed": [{"model": "m"}]},
    "infinitely many": {"unattributed": [{"calls": float("inf")}]},
    "stalls without an end": {"stalls": [{"start_ns": 1}]},
    "counts of words": {"counts": {"offered": "many"}},
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_ledger_that_is_not_ours_is_told_and_no_bug(what: str) -> None:
    empty = {"run": 1, "entries": [], "listed": 0, "counts": {}, "unattributed": [], "stalls": []}
    page = {**empty, "lateness_ms": {}, **STRANGE[what]}
    kept: list[object] = []
    strange = pytest.raises(StrangeProviderError, match="is not agentload's, or of another version")
    with answering(page) as control, strange:
        control.ledger(1, lambda page: kept.extend(ledger_from_provider(page, ["a"], 0)))


def test_what_a_stranger_says_is_no_word_to_the_terminal() -> None:
    with answering({"error": "\x1b]0;mine\x07\n2"}, b"409 Conflict") as control:
        assert refusal(control).isprintable()


def test_a_page_that_was_lost_is_asked_for_again(
    provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with control_of(provider.url) as control:
        control.begin(9, {})
        provider.client.post(PATH, json=marked(run=9))
        whole, asked = probe.exchange, list[str]()

        def lossy(http: httpx.Client, method: str, url: str, **more: Any) -> probe.Reply:
            asked.append(url)
            if len(asked) == 1:
                raise UnreachableError("lost")
            return whole(http, method, url, **more)

        monkeypatch.setattr(probe, "exchange", lossy)
        kept: list[object] = []
        control.ledger(9, kept.extend)
    assert (len(kept), len(asked)) == (1, 2)


def test_a_provider_serves_one_run_at_a_time(provider: ProviderProcess) -> None:
    with control_of(provider.url) as first, control_of(provider.url) as second:
        first.begin(1, {}, hold_s=60)
        with pytest.raises(ProviderTakenError) as raised:
            second.begin(2, {})
        assert "run number 1 has this provider for itself, for 60 s at least" in str(raised.value)
        first.begin(1, {}, hold_s=60)
        first.hold(1, 0)
        second.begin(2, {})
        with pytest.raises(
            ProviderTakenError, match="the run here is number 2, not 1: another one has begun"
        ):
            first.hold(1, 60)
        with pytest.raises(ProviderTakenError, match="another one has begun"):
            first.ledger(1, lambda _: None)


def test_a_hold_that_nobody_renews_lapses(provider: ProviderProcess) -> None:
    with control_of(provider.url) as control:
        control.begin(1, {}, hold_s=0.05)
        wait_until(lambda: control.health()["held_s"] == 0)
        control.begin(2, {})


def test_the_watch_renews_and_notices_another_run(
    provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_watch, "EVERY_S", 0.02)
    with control_of(provider.url) as control:
        control.begin(1, {})
        watch = ProviderWatch(control, 1)
        watch.start()
        wait_until(lambda: control.health()["held_s"] > 0)
        assert watch.problem is None
        take(control, 2)
        wait_until(lambda: watch.problem is not None)
    assert isinstance(watch.problem, ProviderTakenError)
    assert "the run here is number 2, not 1: another one has begun" in str(watch.problem)


def take(control: ProviderControl, run: int) -> None:
    """Begin another run, by force of patience: between a hold that is let go and the next."""
    while True:
        control.hold(1, 0)
        with suppress(ProviderTakenError):
            control.begin(run, {})
            return


def test_a_watch_gives_a_silent_provider_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_watch, "EVERY_S", 0.01)
    monkeypatch.setattr(provider_watch, "AGAIN_S", 0.01)
    monkeypatch.setattr(provider_watch, "LOST_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with control_of(url) as control:
        watch = ProviderWatch(control, 1)
        watch.start()
        wait_until(lambda: watch.problem is not None)
    assert str(watch.problem).startswith("the provider was lost during the run: the provider's control at")


class Hiccups(ProviderControl):
    """Every other word gets lost."""

    words = 0

    def hold(self, run: int, seconds: float) -> None:
        self.words += 1
        if self.words % 2:
            raise UnreachableError("no answer within 5 s")
        super().hold(run, seconds)


def test_a_watch_forgives_one_word_that_got_lost_again_and_again(
    provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EVERY_S", "AGAIN_S", "LOST_S"):
        monkeypatch.setattr(provider_watch, name, 0.001)
    with probe.client() as http:
        control = Hiccups(http, provider.url)
        control.begin(1, {})
        watch = ProviderWatch(control, 1)
        watch.start()
        wait_until(lambda: control.words > 6 or not watch.is_alive())
        watch.stop()
        watch.join()
        ProviderControl(http, provider.url).hold(1, 0)
    assert watch.problem is None


# ---------------------------------------------------------------------------------- another host's clock


@pytest.mark.skipif(not has_time_namespaces(), reason=NO_NAMESPACES)
def test_the_clock_of_another_host_is_found_to_half_a_round_trip(tmp_path: Path) -> None:
    """The provider's monotonic clock is a day ahead; calls must have arrived while they were made."""
    with another_host() as (url, http):
        direct = Stage(profile(), tmp_path, 5)
        with direct as stage:
            stage.use_provider(url)
            assert stage.clock is not None
            assert stage.clock.before.ahead_ns == pytest.approx(AHEAD_S * 10**9, abs=10**9)
            assert stage.clock.uncertainty_ns < 100_000_000
        port = int(url.rpartition(":")[2])
        with delaying_proxy(port, 0.06, 0.0) as far, Stage(profile(), tmp_path, 6) as stage:
            stage.use_provider(f"http://127.0.0.1:{far}")
            assert stage.clock is not None
            assert stage.clock.uncertainty_ns >= 30_000_000, "half of 60 ms"
            assert abs(stage.clock.before.ahead_ns - direct_ahead_ns(url)) <= stage.clock.uncertainty_ns * 2
        assert http.post(PATH, json=marked(run=6)).status_code == 200


def direct_ahead_ns(url: str) -> int:
    with control_of(url) as control:
        return control.read_clock().ahead_ns


@contextmanager
def another_host() -> Generator[tuple[str, httpx.Client]]:
    """A provider whose monotonic clock is a day ahead of ours."""
    command = [*AHEAD, sys.executable, "-m", "fake_provider", "--port=0", "--parent-pipe"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        with httpx.Client(base_url=url) as http:
            yield url, http
    finally:
        process.communicate(timeout=20)


def test_one_host_has_one_clock(provider: ProviderProcess, tmp_path: Path) -> None:
    with Stage(profile(), tmp_path, 5) as stage:
        stage.use_provider(provider.url)
        assert stage.clock is None
        stage.read_clock_again()
        assert stage.clock is None
    assert provider.control("GET", "health")["held_s"] == 0, "and let go of at the end"


# ---------------------------------------------------------------------------------- behind TLS


@contextmanager
def tls_in_front(port: int, certificate: Path, key: Path) -> Generator[str]:
    """A proxy that speaks TLS and passes everything on; yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def shake_hands(raw: socket.socket) -> None:
        with raw, suppress(OSError), context.wrap_socket(raw, server_side=True) as near:  # noqa: SIM117
            with socket.create_connection(("127.0.0.1", port)) as far:
                while pass_on(near, far):
                    pass

    def pass_on(near: ssl.SSLSocket, far: socket.socket) -> bool:
        [ready, *_] = select.select([near, far], [], [])[0]
        data = ready.recv(65_536)
        (far if ready is near else near).sendall(data)
        return bool(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                raw, _ = listener.accept()
                threading.Thread(target=shake_hands, args=(raw,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_the_certificate_in_front_of_the_control_is_verified(
    provider: ProviderProcess, tmp_path: Path
) -> None:
    """By nobody's authority it is refused; by the target's own (`tls.ca`) the run goes on."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    command = [*made.split(), "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, capture_output=True, check=True)
    with tls_in_front(provider.port, certificate, key) as url:
        with Stage(profile(), tmp_path, 7) as stage, pytest.raises(UnreachableError) as raised:
            stage.use_provider(url)
        assert "its certificate is not one that this machine trusts" in str(raised.value)
        with Stage(profile(), tmp_path, 7, trust=Trust(ca=str(certificate))) as stage:
            stage.use_provider(url)
            assert stage.calls_seen() == 0
