"""Before the load: is the target there and ready? Every answer ends in time, with one line."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from agentload import profile, targets
from agentload.drivers.target_probe import await_ready, chat_probe, refuse_dead_upstream
from agentload.errors import UnreachableError
from agentload.targets import Target
from hostile_servers import Script, chunked_flood, endless_interim, says, serving

PROFILE = profile.load(profile.find("steady"), [])


def target_at(port: int, health: str | None = None) -> Target:
    target = targets.load(f"http://127.0.0.1:{port}", {})
    return replace(target, health=health)


def problem_with(script: Script) -> str:
    with serving(script) as server:
        target = target_at(server.port)
        with pytest.raises(UnreachableError) as raised:
            chat_probe(target, targets.probe_request(target, PROFILE))
    [line] = raised.value.lines
    return line


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (says(b"{}", b"308 Moved", b"Location: http://192.0.2.1/\r\n"), "308, see http://192.0.2.1/: give"),
        (says(b"{}", b"308 Moved"), "answered 308: give the final address"),
        (says(b"", b"302 No", b"Location: /" + b"y" * 999 + b"\r\n"), f"see /{'y' * 159}…: give"),
        (says(b"<html>", fields=b"Content-Type: text/html\r\n"), "with HTML, not JSON: is this its API?"),
        (says(b"{}", b"401 No"), "answered 401: are the tenants' keys known to it?"),
        (says(b'{"message": " who\\n \\u001b[2J?"}', b"401 No"), 'answered 401 ("who \\x1b[2J?"): are the'),
        (says(b'{"error": "' + b"n" * 999 + b'"}', b"401 No"), f'answered 401 ("{"n" * 80}…"): are the'),
        (says(b'{"error": "sk-secret is no"}', b"403 No"), 'answered 403 ("sk-*** is no"): are the'),
        (says(b"{}", b"404 No"), "answered 404: is the path right?"),
        (says(b'{"detail": "no route"}', b"404 No"), 'answered 404 ("no route"): is the path right?'),
        (says(b"no"), "answered 200 without JSON"),
        (says(b'{"x":' + b"[" * 100_000), "answered 200 with JSON nested too deeply"),
        (says(b"[]"), "answered 200 with JSON that is not an object"),
        (chunked_flood, "answered with more than 1048576 bytes, or an endless head"),
        (endless_interim, "does not speak HTTP (its answer is malformed)"),
        (lambda sock, _: sock.sendall(b"sk-secret\r\n\r\n"), "does not speak HTTP (its answer is malformed)"),
        (lambda sock, _: None, "closes the connection without an answer"),
    ],
)  # fmt: skip
def test_what_is_no_target_is_one_line(script: Script, problem: str) -> None:
    line = problem_with(script)
    assert problem in line
    assert "sk-secret" not in line


def test_a_key_that_comes_back_is_not_said_again_also_where_words_are_cut() -> None:
    key, before = "a-key-of-ours-0123456789", "x" * 70
    with serving(says(f'{{"error": "{before} {key}"}}'.encode(), b"401 No")) as server:
        target = replace(target_at(server.port), name="gateway.yaml", keyring={"steady": key})
        with pytest.raises(UnreachableError) as raised:
            chat_probe(target, targets.probe_request(target, PROFILE))
    mend = "are the tenants' keys known to it? `keys:` or `headers:` of gateway.yaml says whose key is whose"
    assert raised.value.lines[0].endswith(f'401 ("{before} ***"): {mend}')


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_cannot_reach_our_provider_says_so_by_its_status(status: int) -> None:
    request = targets.probe_request(target_at(8080), PROFILE)
    with pytest.raises(UnreachableError) as raised:
        refuse_dead_upstream(request, status, "http://127.0.0.1:9001")
    assert raised.value.lines == (
        f"the target gateway at http://127.0.0.1:8080/v1/chat/completions: answered {status}: the "
        "gateway cannot reach its upstream: does it call http://127.0.0.1:9001, where our provider listens?",
    )
    for other in (200, 429, 500):
        refuse_dead_upstream(request, other, "http://127.0.0.1:9001")


def test_a_refusal_is_an_answer() -> None:
    with serving(says(b'{"error": "full"}', b"429 Full")) as server:
        target = target_at(server.port)
        assert chat_probe(target, targets.probe_request(target, PROFILE)) == 429


def test_health_is_waited_for() -> None:
    ready = threading.Event()

    def script(sock: object, over: threading.Event) -> None:
        (says(b"ok") if ready.is_set() else says(b"no", b"503 Not yet"))(sock, over)  # type: ignore[arg-type]

    with serving(script) as server:
        with pytest.raises(UnreachableError, match=r"/healthz: answers 503 \(for 0\.2 s\)"):
            await_ready(target_at(server.port, "/healthz"), 0.2)
        threading.Timer(0.3, ready.set).start()
        began_s = time.monotonic()
        await_ready(target_at(server.port, "/healthz"), 10)
        assert time.monotonic() - began_s < 5
        assert ready.is_set()


def test_without_health_a_connection_will_do() -> None:
    with serving(says(b"")) as server:
        await_ready(target_at(server.port), 1)
        port = server.port
    with pytest.raises(UnreachableError, match="nothing listens there"):
        await_ready(target_at(port), 0.2)
