"""nginx, HAProxy and Envoy as people run them: what a doctor says of each, and which profiles each one fails.

Every failure has its control: the same gateway with the one line that was missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentload import doctor
from agentload.doctor.findings import Finding, Grade, findings
from agentload.doctor.observed import Kind, Seen
from agentload.order import Options
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


@pytest.mark.parametrize("name", ["nginx, bare refusals", "envoy, bare refusals"])
def test_refusals_as_they_come_without_configuration_carry_no_retry_after(name: str, tmp_path: Path) -> None:
    found = found_in(seen_through(name, tmp_path, 60))["refusals"]
    assert found.grade is Grade.NOTE
    assert "missing" in found.said


def test_haproxy_keeps_the_call_of_a_client_that_left_unless_it_is_told_not_to(tmp_path: Path) -> None:
    found = found_in(seen_through("haproxy, no abortonclose", tmp_path))["client leaves"]
    assert found.grade is Grade.NOTE
    assert "runs on at our provider (completed)" in found.said


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
    ("nginx", "disconnects", {"cancel-upstream": PASSED}),
    ("envoy", "disconnects", {"cancel-upstream": PASSED}),
    ("haproxy", "disconnects", {"cancel-upstream": PASSED}),
    ("haproxy, no abortonclose", "disconnects", {"cancel-upstream": FAILED}),
]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("name", "profile", "expected"), VERDICTS, ids=[f"{n}-{p}" for n, p, _ in VERDICTS])
def test_what_a_profile_says_of_a_gateway(
    name: str, profile: str, expected: Mapping[str, str], tmp_path: Path
) -> None:
    with running(name, tmp_path / "gateway", free_port()) as target:
        command = [
            sys.executable,
            "-P",
            "-m",
            "agentload",
            "run",
            profile,
            "--target",
            str(target),
            "--out",
            "run",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    if not report["generator"]["valid"]:
        pytest.skip("the load was not as planned: this machine is too busy for a verdict")
    verdicts = {one["check"]: one["status"] for one in report["verdicts"]}
    assert {check: verdicts[check] for check in expected} == dict(expected), done.stdout
