"""Whatever the health page does, it is a sample in time, and the watch goes on."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest

from agentload import targets
from agentload.drivers import health_watch
from agentload.drivers.health_watch import HealthWatch
from agentload.drivers.probe import MIB, Bounds
from agentload.evidence.health_samples import SOURCE, STATUS, TOOK_S
from agentload.model import NS, Sample
from hostile_servers import Script, chunked_flood, endless_interim, says, serving, stalls
from process_facts import wait_until


def watch(port: int, kept: list[Sample], t0_ns: int = 0) -> HealthWatch:
    target = replace(targets.load(f"http://127.0.0.1:{port}", {}), health="/healthz")
    return HealthWatch(target, t0_ns, time.monotonic_ns, kept.append)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (says(b"ok"), 200),
        (says(b"busy", b"503 Busy", b"Retry-After: 1\r\n"), 503),
        (says(b"", b"302 Moved", b"Location: /x\r\n"), 302),
        (stalls(b""), 0),
        (stalls(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), 0),
        (chunked_flood, 0),
        (endless_interim, 0),
        (lambda sock, _: None, 0),
    ],
    ids=["well", "refused", "moved", "silent", "half", "flood", "interim", "closed"],
)
def test_every_answer_is_a_status_or_none(
    script: Script, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_watch, "BOUNDS", Bounds(0.3, MIB))
    with serving(script) as server:
        began_s = time.monotonic()
        assert watch(server.port, []).ask() == status
        assert time.monotonic() - began_s < 2


def test_where_nothing_listens_there_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert watch(port, []).ask() == 0


def test_it_asks_over_new_connections_and_dates_by_the_runs_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "EVERY_NS", NS // 50)
    kept: list[Sample] = []
    with serving(says(b"ok")) as server:
        t0_ns = time.monotonic_ns()
        asking = watch(server.port, kept, t0_ns)
        asking.start()
        wait_until(lambda: bool(kept), 5)
        asking.stop()
        assert not asking.is_alive()
        [one] = kept  # the second is due a second after the first
        assert server.connections == 1
        assert (one.source, one.values[STATUS]) == (SOURCE, 200.0)
        assert NS // 50 <= one.at_ns < one.at_ns + one.values[TOOK_S] * NS <= time.monotonic_ns() - t0_ns
        assert asking.ask() == asking.ask() == 200
        assert server.connections == 3
