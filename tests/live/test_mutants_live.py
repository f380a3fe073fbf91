"""Ten mutants of the real gateway, killed by real load: what virtual time says, sockets say, too.

Each run takes 15 to 30 s, and a busy machine makes verdicts inconclusive: `make live` runs them, CI does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentload import mutants
from agentload.errors import ExitCode

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(180)]

KILLED_LIVE = [
    "one-shared-queue",
    "weights-ignored",
    "counts-requests-not-tokens",
    "failed-calls-keep-their-slot",
    "slot-freed-at-first-byte",
    "no-retry-after",
    "broken-stream-ends-well",
    "provider-retry-after-ignored",
    "upstream-outlives-client",
    "ghosts-are-served",
]
"""At least two of each family: queueing and fairness, limits, refusals and retries, disconnects."""
TRIES = 2
"""A run on a machine that stood still proves nothing, and is made once more."""


def argument(name: str, folder: Path) -> list[str]:
    """The mutant's own load as an argument of `agentload run`."""
    mutant = mutants.SEAM.get(name)
    settings = [part for one in mutant.settings for part in ("--set", one)]
    if "\n" not in mutant.profile:
        return [mutant.profile, "--quick", *settings]
    path = folder / f"{name}.yaml"
    path.write_text(mutant.profile, encoding="utf-8")
    return [str(path), *settings]


def run(folder: Path, *arguments: str) -> tuple[int, dict[str, list[str]], str]:
    """Exit code, check → its statuses, and everything that was said."""
    for attempt in range(TRIES):
        out = folder / f"run-{attempt}"
        command = [sys.executable, "-m", "agentload", "run", *arguments, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != ExitCode.INCONCLUSIVE:
            break
    statuses: dict[str, list[str]] = {}
    for check in json.loads((out / "report.json").read_bytes())["checks"]:
        statuses.setdefault(check["check"], []).append(check["status"])
    return done.returncode, statuses, done.stdout + done.stderr


@pytest.mark.parametrize("name", KILLED_LIVE)
def test_a_mutant_is_killed_live_by_its_own_check(name: str, tmp_path: Path) -> None:
    code, statuses, said = run(tmp_path, *argument(name, tmp_path), "--mutant", name)
    assert "failed" in statuses[mutants.SEAM.get(name).killed_by], said
    assert code == ExitCode.FAILED, said
    assert f"mutant {name}" in said


@pytest.mark.parametrize(
    "name", ["slot-freed-at-first-byte", "broken-stream-ends-well", "ghosts-are-served", "one-shared-queue"]
)
def test_the_reference_is_not_killed_under_the_same_load(name: str, tmp_path: Path) -> None:
    code, statuses, said = run(tmp_path, *argument(name, tmp_path))
    assert {status for found in statuses.values() for status in found} == {"passed"}, said
    assert code == ExitCode.PASSED, said
