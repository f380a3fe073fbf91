"""LiteLLM's proxy as a gateway, from `agentload init`'s preset and with a line changed: what is found.

Behind `make litellm`: it takes half a minute to start, and carries a few dozen requests a second. So the
profiles beside this file send few, and watch for as long as its limits count.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentload import rundir
from agentload.evidence.departures import departures
from agentload.evidence.history import counted_records
from agentload.model import Run
from live_report import verdicts_of
from real_gateways import free_port, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]
PROFILES = Path(__file__).parent / "profiles"
WINDOW_S = 60
"""Of LiteLLM's limits, unless LITELLM_RATE_LIMIT_WINDOW_SIZE says another."""


def judged(name: str, profile: str, folder: Path, *checks: str) -> tuple[dict[str, dict[str, Any]], Run]:
    """The verdicts by check, and the run. Skips where the machine was too busy for these checks."""
    with running(name, folder / "gateway", free_port()) as target:
        path = PROFILES / f"few-requests-{profile}.yaml"
        command = [sys.executable, "-P", "-m", "agentload", "run", str(path), "--target", str(target)]
        done = subprocess.run(
            [*command, "--out", "run"], cwd=folder, capture_output=True, text=True, check=False
        )
    assert "Traceback" not in done.stderr, done.stderr
    return verdicts_of(folder / "run", *checks), rundir.load(folder / "run")


def statuses(verdicts: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {check: one["status"] for check, one in verdicts.items()}


def test_with_a_limit_for_each_tenant_only_the_flood_is_refused(tmp_path: Path) -> None:
    verdicts, run = judged("litellm, a small limit", "limits", tmp_path, "victim-goodput")
    assert statuses(verdicts)["victim-goodput"] == "passed", verdicts["victim-goodput"]
    refused = Counter(record.tenant for record in run.records if record.status == 429)
    assert set(refused) == {"flood"}
    assert statuses(verdicts)["retry-after-present"] == statuses(verdicts)["retry-after-syntax"] == "passed"


def test_with_one_limit_for_all_the_flood_takes_the_others_answers(tmp_path: Path) -> None:
    verdicts, _ = judged("litellm, one limit for all", "limits", tmp_path, "victim-goodput")
    assert statuses(verdicts)["victim-goodput"] == "failed", verdicts["victim-goodput"]


def test_retry_after_is_the_windows_length_whatever_is_left_of_it(tmp_path: Path) -> None:
    verdicts, run = judged("litellm, a small limit for all", "promises", tmp_path)
    assert statuses(verdicts)["retry-after-honest"] == "failed", verdicts["retry-after-honest"]
    refused = [record for record in run.records if record.status == 429]
    assert {record.retry_after for record in refused} == {str(WINDOW_S)}
    returned = [record for record in run.records if record.attempt == 1]
    served = sum(record.status == 200 for record in returned)
    assert len(returned) >= 20
    assert served >= 0.9 * len(returned), Counter(record.status for record in returned)


def test_a_plain_call_goes_on_after_its_client_and_a_stream_does_not(tmp_path: Path) -> None:
    verdicts, run = judged("litellm", "leaving", tmp_path)
    assert statuses(verdicts)["cancel-upstream"] == "failed", verdicts["cancel-upstream"]
    endings = Counter(
        (departure.record.tenant, str(call.ending))
        for departure in departures(counted_records(run), run.ledger)
        for call in departure.in_flight
    )
    assert endings["plain", "completed"] >= 15, endings
    assert endings["plain", "cancelled"] == 0, endings
    assert endings["reader", "cancelled"] > endings["reader", "completed"], endings


@pytest.mark.parametrize(("name", "expected"), [("litellm", "passed"), ("litellm, retries", "failed")])
def test_its_own_retries_multiply_calls_in_an_outage(name: str, expected: str, tmp_path: Path) -> None:
    verdicts, _ = judged(name, "outage", tmp_path)
    assert statuses(verdicts)["retry-amplification"] == expected, verdicts["retry-amplification"]
    assert statuses(verdicts)["upstream-retry-after"] == "failed", verdicts["upstream-retry-after"]
