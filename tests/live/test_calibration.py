"""`--scale auto` against real gateways: one that carries 26 requests/s, one with limits, one without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentload import calibration
from agentload.calibration.knee import Carried, EndedBy
from agentload.errors import ExitCode
from agentload.order import Options, prepare
from real_gateways import WORSE, free_port, running
from slow_gateway import slow_gateway

pytestmark = pytest.mark.live

MODEST = """\
name: modest
about: Two tenants, a few seconds, more than a slow gateway carries.
phases: [{name: load, seconds: 3}]
provider: {slots: 32, latency: {first_token_ms: 20, inter_token_ms: 5}}
tenants:
  - {name: left, arrivals: {kind: uniform, rate: 40}, workload: {kind: fixed, output_tokens: 4}}
  - {name: right, arrivals: {kind: uniform, rate: 40}, workload: {kind: chat}}
checks: [own-answer, status-codes, bounded-queue]
"""
FASTER = ("nginx", {"rate=13r/s": "rate=100000r/s", "burst=20": "burst=100000"})


def measured(target: Path, profile: str = "noisy-neighbor") -> Carried:
    """What a ramp finds. Skips where this machine is too busy to say."""
    options = Options(profile=profile, target=str(target), scale="auto")
    prepared = prepare(options)
    found = calibration.measure(options, prepared, [calibration.asked(prepared)], Console(quiet=True))
    if found.ended_by is EndedBy.GENERATOR and found.per_s < 200:
        pytest.skip(f"this machine is too busy for a verdict: {found.steps}")
    return found


@pytest.mark.slow
def test_a_gateway_of_26_requests_a_second_is_found_to_be_one(tmp_path: Path) -> None:
    with slow_gateway(tmp_path, 0.038) as target:
        found = measured(target)
    assert found.ended_by is EndedBy.TARGET
    assert 13 < found.per_s < 28
    assert found.limit_per_s is None


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_slow_gateway_gets_a_verdict_and_the_command_that_makes_the_run_again(tmp_path: Path) -> None:
    (tmp_path / "modest.yaml").write_text(MODEST)
    with slow_gateway(tmp_path, 0.038):
        command = ["run", "modest.yaml", "--target", "target.yaml", "--scale", "auto", "--out", "run"]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agentload", *command],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode in (ExitCode.PASSED, ExitCode.FAILED, ExitCode.INCONCLUSIVE), done.stderr
    report: dict[str, Any] = json.loads((tmp_path / "run" / "report.json").read_text())
    if not report["generator"]["trustworthy"]:
        pytest.skip(f"this machine is too busy for a verdict: {report['generator']['reasons']}")
    assert done.returncode == ExitCode.PASSED, done.stdout
    scale, said = report["scale"], report["command"]
    assert 0.1 < scale["factor"] < 0.4
    assert said[said.index("--scale") + 1] == f"{scale['factor']:.6g}"
    assert (scale["asked"], scale["carried"]["ended_by"]) == ("auto", "target")
    assert scale["phases_longer"] == pytest.approx(1 / scale["factor"], rel=0.01)
    assert f"--scale {scale['factor']:.6g}" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_limits_of_a_gateway_are_not_taken_for_what_it_carries(tmp_path: Path) -> None:
    with running("nginx", tmp_path, free_port()) as target:
        found = measured(target)
    assert found.per_s > 100
    assert found.limit_per_s == pytest.approx(4 * 13, rel=0.35)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_fast_gateway_carries_many_times_what_a_slow_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WORSE, "nginx, hardly a limit", FASTER)  # type: ignore[arg-type]
    with running("nginx, hardly a limit", tmp_path, free_port()) as target:
        found = measured(target)
    assert found.per_s > 100
    assert found.limit_per_s is None
