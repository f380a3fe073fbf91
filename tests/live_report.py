"""The report of a live run, for tests that rest on its verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentload.model import Status


def report_of(folder: Path, *checks: str) -> dict[str, Any]:
    """Of the run in `folder`. Skips where the machine decided, not the gateway: the load was not as planned,
    or one of these checks has too few requests without those of a moment in which the machine stood still."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    too_busy = [] if report["generator"]["trustworthy"] else list(report["generator"]["reasons"])
    too_busy += [
        one["because"] for one in report["checks"] if one["check"] in checks and _was_the_machine(one)
    ]
    if too_busy:
        pytest.skip(f"this machine is too busy for a verdict: {too_busy}")
    return report


def verdicts_of(folder: Path, *checks: str) -> dict[str, dict[str, Any]]:
    """The verdicts of that report, by check."""
    return {one["check"]: one for one in report_of(folder, *checks)["checks"]}


def _was_the_machine(verdict: dict[str, Any]) -> bool:
    return verdict["status"] == Status.INCONCLUSIVE and "on a quieter machine" in verdict["because"]
