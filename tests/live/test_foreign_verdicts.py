"""Checks that once only the bundled gateway could have: decided for somebody's, by what its file declares."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentload.mutants._scenes import STUCK
from foreign_gateway import JSON, METRICS, serving

pytestmark = [pytest.mark.live, pytest.mark.slow]
PASSED, FAILED = "passed", "failed"


def verdicts(folder: Path, profile: str, **how: Any) -> dict[str, Any]:
    """Of a run against the reference gateway run by itself. Skips where the load was not as planned."""
    with serving(profile, folder / "gateway", **how) as gateway:
        words = [sys.executable, "-P", "-m", "agentload", "run", profile, "--target", str(gateway.target)]
        done = subprocess.run(
            [*words, "--out", "run"], cwd=folder, capture_output=True, text=True, check=False, timeout=170
        )
    assert "Traceback" not in done.stderr
    report = json.loads((folder / "run" / "report.json").read_text())
    if not report["generator"]["trustworthy"]:
        pytest.skip(f"this machine is too busy for a verdict: {report['generator']['reasons']}")
    return {one["check"]: one for one in report["checks"]}


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("mutant", "expected"), [(None, PASSED), ("age-of-the-newest", FAILED)])
def test_an_alert_on_its_own_queue_age_is_judged(tmp_path: Path, mutant: str | None, expected: str) -> None:
    """Of the gateway that shows the age of the newest, on the page that shows it."""
    (tmp_path / "stuck.yaml").write_text(f"{STUCK.rstrip()}\n  - bounded-memory\n")
    found = verdicts(
        tmp_path, str(tmp_path / "stuck.yaml"), mutant=mutant, metrics=JSON if mutant else METRICS
    )
    assert found["queue-age-alert"]["status"] == expected, found
    assert found["bounded-memory"]["status"] == PASSED, found


@pytest.mark.timeout(200)
def test_durable_jobs_of_a_gateway_that_is_killed_by_its_file(tmp_path: Path) -> None:
    found = verdicts(tmp_path, "worker-crash", jobs=True)
    names = ("nothing-lost", "exactly-once", "lease-reclaim", "eta-honest")
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, PASSED), found
