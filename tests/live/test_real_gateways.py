"""nginx, HAProxy and Envoy as people run them: what a doctor says of each, and which profiles each one fails.

Every failure has its control: the same gateway with the one line that was missing.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload import doctor, rundir
from agentload.doctor.findings import Finding, Grade, findings
from agentload.doctor.observed import Kind, Seen
from agentload.evidence.hidden_queue import compare_with_gauge, depth_steps
from agentload.model import Sample
from agentload.order import Options
from live_report import report_of
from real_gateways import free_port, running

pytestmark = pytest.mark.live
ALL = ("nginx", "haproxy", "envoy")


def seen_through(name: str, folder: Path, burst: int = 40) -> Seen:
    with running(name, folder, free_port()) as target:
        return doctor.examine(Options(profile="noisy-neighbor", target=str(target)), burst)


def found_in(seen: Seen) -> dict[str, Finding]:
    return {one.about: one for one in findings(seen)}


@pytest.mark.parametrize("kind", ALL)
def test_a_preset_serves_every_tenant_and_carries_marker_usage_and_streams(kind: str, tmp_path: Path) -> None:
    found = found_in(seen_through(kind, tmp_path))
    good = ("authenticated", "our provider", "marker", "identity upstream", "usage", "client leaves", "HTTP")
    assert {about: found[about].grade for about in good} == dict.fromkeys(good, Grade.GOOD), found
    assert "exact" in found["marker"].said


@pytest.mark.parametrize(("kind", "burst"), [("nginx", 60), ("haproxy", 100), ("envoy", 60)])
def test_a_preset_refuses_in_a_burst_and_says_when_to_come_back(
    kind: str, burst: int, tmp_path: Path
) -> None:
    refused = [one for one in seen_through(kind, tmp_path, burst).of(Kind.BURST) if one.status == 429]
    assert refused
    assert {one.retry_after for one in refused} == {"1"}
    logs = [path.read_text() for path in tmp_path.glob("*.log")]
    assert logs
    assert not [line for text in logs for line in text.splitlines() if "limiting" in line], (
        "a line for each would bury a terminal"
    )


@pytest.mark.parametrize("name", ["nginx, bare refusals", "envoy, bare refusals"])
def test_refusals_as_they_come_without_configuration_carry_no_retry_after(name: str, tmp_path: Path) -> None:
    found = found_in(seen_through(name, tmp_path, 60))["refusals"]
    assert found.grade is Grade.NOTE
    assert "missing" in found.said


def test_haproxy_keeps_the_call_of_a_client_that_left_unless_it_is_told_not_to(tmp_path: Path) -> None:
    found = found_in(seen_through("haproxy, no abortonclose", tmp_path))["client leaves"]
    assert found.grade is Grade.NOTE
    assert "cancel-upstream will fail" in found.said


# --------------------------------------------------------------------------- whole profiles, minutes long

PASSED, FAILED = "passed", "failed"
VERDICTS: list[tuple[str, str, Mapping[str, str]]] = [
    (
        "nginx",
        "noisy-neighbor",
        {"victim-goodput": PASSED, "victim-latency": PASSED, "retry-after-present": PASSED},
    ),
    ("nginx, bare refusals", "noisy-neighbor", {"victim-goodput": PASSED, "retry-after-present": FAILED}),
    ("nginx, one limit for all", "noisy-neighbor", {"victim-goodput": FAILED, "victim-latency": FAILED}),
    ("haproxy", "noisy-neighbor", {"victim-goodput": PASSED, "victim-latency": PASSED}),
    ("haproxy, one limit for all", "noisy-neighbor", {"victim-goodput": FAILED}),
    ("envoy", "noisy-neighbor", {"victim-goodput": PASSED, "victim-latency": PASSED}),
    ("envoy, one limit for all", "noisy-neighbor", {"victim-goodput": FAILED}),
    ("nginx", "retry-storm", {"retry-amplification": PASSED}),
    ("nginx, next upstream", "retry-storm", {"retry-amplification": FAILED, "upstream-retry-after": FAILED}),
    ("envoy, retries", "retry-storm", {"retry-amplification": FAILED, "upstream-retry-after": FAILED}),
    ("nginx", "disconnects", {"cancel-upstream": PASSED}),
    ("envoy", "disconnects", {"cancel-upstream": PASSED}),
    ("haproxy", "disconnects", {"cancel-upstream": PASSED}),
    ("haproxy, no abortonclose", "disconnects", {"cancel-upstream": FAILED}),
]


def run_profile(
    folder: Path, target: Path, profile: str, *options: str, checks: Iterable[str] = ()
) -> dict[str, Any]:
    """The report of a live run in `folder/run`. Skips where the machine was too busy for these checks."""
    command = [sys.executable, "-P", "-m", "agentload", "run", profile, "--target", str(target)]
    command += ["--out", "run", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return report_of(folder / "run", *checks)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("name", "profile", "expected"), VERDICTS, ids=[f"{n}-{p}" for n, p, _ in VERDICTS])
def test_what_a_profile_says_of_a_gateway(
    name: str, profile: str, expected: Mapping[str, str], tmp_path: Path
) -> None:
    with running(name, tmp_path / "gateway", free_port()) as target:
        report = run_profile(tmp_path, target, profile, checks=expected)
    verdicts = {one["check"]: one for one in report["checks"]}
    assert {check: verdicts[check]["status"] for check in expected} == dict(expected), verdicts


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("nginx", PASSED),
        ("haproxy", PASSED),
        ("envoy", PASSED),
        ("nginx, more than it says", FAILED),
    ],
)
def test_a_tenants_limit_is_judged_by_the_number_that_the_preset_declares(
    name: str, status: str, tmp_path: Path
) -> None:
    with running(name, tmp_path / "gateway", free_port()) as target:
        report = run_profile(tmp_path, target, "limit-edges", "--quick", checks=["tenant-limit"])
    [edges, bulk] = [one for one in report["checks"] if one["check"] == "tenant-limit"]
    assert (edges["status"], bulk["status"]) == (status, PASSED), edges
    assert "burst 20)" not in edges["because"], "that is the bundled gateway's"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_queue_seen_from_outside_is_the_one_that_haproxy_counts(tmp_path: Path) -> None:
    """Slots bind, not tokens, and nothing is limited: a flood waits in HAProxy for up to five seconds."""
    stats = tmp_path / "gateway" / "stats"
    with running("haproxy, no limit", stats.parent, free_port()) as target, haproxy_queue(stats) as samples:
        run_profile(tmp_path, target, "noisy-neighbor", "--set", "provider.tokens_per_minute=9000000")
    recorded = rundir.load(tmp_path / "run")
    t0_ns = rundir.read_manifest(tmp_path / "run").t0_ns
    own = [msgspec.structs.replace(one, at_ns=one.at_ns - t0_ns) for one in samples]
    start_ns, end_ns = recorded.profile.phase_window_ns("noise")
    flooded = [one for one in own if start_ns <= one.at_ns < end_ns]
    assert max(one.values["queue"] for one in flooded) > 100
    agreement = compare_with_gauge(depth_steps(recorded.records, recorded.ledger), flooded, "queue")
    assert agreement is not None
    assert agreement.n >= 200
    assert (agreement.median <= 1, agreement.p95 <= 3) == (True, True), agreement


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_gauge_of_a_target_file_is_drawn_and_compared(tmp_path: Path) -> None:
    """The same flood; its queue as the target file names it, read over HTTP ten times a second."""
    with running("haproxy, no limit, metrics", tmp_path / "gateway", free_port()) as target:
        series = 'haproxy_backend_current_queue{proxy="provider"}'
        target.write_text(f"{target.read_text()}\nmetrics: {{url: /metrics, waiting: '{series}'}}\n")
        report = run_profile(
            tmp_path, target, "noisy-neighbor", "--set", "provider.tokens_per_minute=9000000"
        )
    own = [one.values["waiting"] for one in rundir.load(tmp_path / "run").samples if "waiting" in one.values]
    assert max(own) > 100
    gauge = report["hidden_queue"]["gauge"]
    assert gauge["name"] == "waiting"
    assert gauge["n"] >= 200
    # One reading takes some milliseconds, in which several of 280 requests a second come or go.
    assert (gauge["depth_difference_median"] <= 2, gauge["depth_difference_p95"] <= 10) == (True, True), gauge


SHARP_NS = 4_000_000
"""At 280 requests a second a reading that took longer is one request off by itself."""


@contextmanager
def haproxy_queue(stats: Path) -> Generator[list[Sample]]:
    """Reads HAProxy's own count of waiting requests every 20 ms (times: monotonic clock), until the end."""
    samples: list[Sample] = []
    over = threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            began_ns = time.monotonic_ns()
            queue = _queued(stats)
            ended_ns = time.monotonic_ns()
            if ended_ns - began_ns <= SHARP_NS:
                at_ns = (began_ns + ended_ns) // 2
                samples.append(Sample(at_ns=at_ns, source="gateway", values={"queue": queue}))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join(5)


def _queued(stats: Path) -> float:
    """`qcur` of the backend, in HAProxy's CSV (its management guide, 9.1)."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(str(stats))
        sock.sendall(b"show stat provider 2 -1\n")
        answer = b"".join(iter(lambda: sock.recv(65_536), b"")).decode()
    [row] = [line for line in answer.splitlines() if line.startswith("provider,BACKEND,")]
    return float(row.split(",")[2])
