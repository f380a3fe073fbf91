"""Whatever a gauge answers, the sampler goes on; and what a target's page says is read by its series."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from agentload import plan, rundir
from agentload.checks.queue_age_alert import QueueAgeAlert
from agentload.client.metrics_page import read_page
from agentload.drivers.gauges import Gauge, OwnGauge, Reading
from agentload.drivers.sampler import Sampler
from agentload.errors import UnreachableError
from agentload.evidence.unread_gauges import unread
from agentload.judge import judge
from agentload.model import GaugeReadings, Sample, Spec
from agentload.rundir import RunDir

NONSENSE = [
    b"[]", b'"x"', b"null", b'{"now_ns": "x"}', b'{"now_ns": null}', b"[" * 100_000, b"\xff", b"",
    b'{"queued": ' + b"9" * 400 + b"}",
]  # fmt: skip


@contextmanager
def page(body: bytes) -> Generator[str]:
    """A server that answers with it, always; yields its URL."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock:
                    sock.recv(65_536)
                    sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/gauge"
        listener.shutdown(socket.SHUT_RDWR)


def read(gauge: Gauge, resident: int = 0) -> tuple[list[Sample], int]:
    kept: list[Sample] = []
    sampler = Sampler(gauge, "gateway", 0, lambda: 5, kept.append, lambda: resident)
    sampler.read()
    gauge.close()
    return kept, sum(sampler.readings.failed.values())


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_what_is_no_reading_is_a_miss(body: bytes) -> None:
    with page(body) as url:
        assert read(OwnGauge(url)) == ([], 1)


def test_a_reading_is_kept() -> None:
    with page(b'{"queued": 3, "now_ns": 4, "name": "x"}') as url:
        assert read(OwnGauge(url)) == ([Sample(at_ns=4, source="gateway", values={"queued": 3.0})], 0)


class Broken:
    where, names = "http://gw/metrics", ()

    def read(self) -> Reading:
        raise ValueError

    def close(self) -> None: ...


def test_memory_is_known_although_the_page_is_not() -> None:
    assert read(Broken(), 7) == ([Sample(at_ns=5, source="gateway", values={"resident_bytes": 7.0})], 1)


PROMETHEUS = b"""\
# HELP up Whether it is.
# TYPE up gauge
up{job="a"} 1
up{job="b"} 2.5
# TYPE up_since_total counter
up_since_total 4
age{queue="a"} 3
age{queue="b"} 1
nothing NaN
odd{label="a \\"quoted\\" one, with } in it"} 6
"""
JSON = b'{"queue": {"depth": 4, "ages": [1, 3.5], "name": "x"}, "flat": 2, "on": true}'


@pytest.mark.parametrize(
    ("body", "series", "values"),
    [
        (PROMETHEUS, {"waiting": "up"}, {"waiting": 3.5}),
        (PROMETHEUS, {"waiting": 'up{job="b"}', "x": "up_since_total"}, {"waiting": 2.5, "x": 4}),
        (PROMETHEUS, {"oldest_age_s": "age"}, {"oldest_age_s": 3}),
        (PROMETHEUS, {"waiting": "nothing", "in_flight": "none"}, {}),
        (PROMETHEUS, {"waiting": r'odd{label=~"a \"quoted\".*"}'}, {"waiting": 6}),
        (PROMETHEUS, {"waiting": "queue.depth"}, {}),
        (b"", {"waiting": "up"}, {}),
        (JSON, {"waiting": "queue.depth", "in_flight": "flat"}, {"waiting": 4, "in_flight": 2}),
        (JSON, {"oldest_age_s": "queue.ages.*", "x": "queue.ages.1"}, {"oldest_age_s": 3.5, "x": 3.5}),
        (JSON, {"waiting": "queue.name", "in_flight": "on"}, {}),
        (JSON, {"waiting": "queue.depth.deeper", "in_flight": "queue.ages.9"}, {}),
    ],
)  # fmt: skip
def test_a_page_is_read_by_its_series(
    body: bytes, series: Mapping[str, str], values: Mapping[str, float]
) -> None:
    assert read_page(body, series) == values


@pytest.mark.parametrize("body", [b"\xff", b"up{a= 1", b"up x", b'{"up": ', b'{"a":' + b"[" * 100_000])
def test_what_is_no_page_is_said_so(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_page(body, {"waiting": "up"})


class FailsLater:
    """Ten readings, of which the last two lack a value; then nothing but refusals."""

    where, names = "http://gw/metrics", ("waiting", "oldest_age_s")

    def __init__(self) -> None:
        self.reads = 0

    def read(self) -> Reading:
        self.reads += 1
        if self.reads > 10:
            raise UnreachableError(f"the target's metrics at {self.where}: answers 503")
        return Reading({"waiting": 1.0} if self.reads > 8 else {"waiting": 1.0, "oldest_age_s": 1.0})

    def close(self) -> None: ...


def test_a_page_that_fails_in_the_middle_is_told_with_its_url_and_answer() -> None:
    sampler = Sampler(FailsLater(), "gateway", 0, lambda: 5, lambda _: None)
    for _ in range(10):
        sampler.read()
    of_age = "2 of 10 readings of http://gw/metrics are missing (2 × holds no oldest_age_s)"
    assert sampler.trouble == of_age
    assert unread(sampler.readings, ["waiting"]) is None
    for _ in range(30):
        sampler.read()
    refused = "30 of 40 readings of http://gw/metrics are missing (30 × answers 503)"
    assert unread(sampler.readings, ["waiting"]) == refused
    assert unread(sampler.readings, ["resident_bytes"]) is None


def test_a_verdict_says_why_it_rests_on_few_readings() -> None:
    _, run = QueueAgeAlert.too_few()
    both = (Spec(kind="queue-age-alert"), Spec(kind="status-codes"))
    run.profile = run.profile.model_copy(update={"checks": both})
    run.gauges = GaugeReadings(where="http://gw/metrics", reads=100, failed={"answers 503": 90})
    of_age, of_status = judge(run)
    assert of_age.because.endswith("; 90 of 100 readings of http://gw/metrics are missing (90 × answers 503)")
    assert "readings" not in of_status.because
    run.gauges.failed["answers 503"] = 10
    assert "are missing" not in judge(run)[0].because


def test_it_is_read_back_with_the_run(tmp_path: Path) -> None:
    _, run = QueueAgeAlert.example()
    manifest = rundir.manifest_of(run.profile, plan.draw(run.profile, 1), "live", datetime(2026, 1, 1))
    manifest.gauges = GaugeReadings(where="http://gw/metrics", reads=2, lacking={"waiting": 1})
    RunDir(tmp_path).save(run, manifest)
    assert rundir.load(tmp_path).gauges == manifest.gauges
