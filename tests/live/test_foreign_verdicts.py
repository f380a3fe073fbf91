"""Checks that once only the bundled gateway could have: decided for somebody's, by what its file declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentload.mutants._scenes import STUCK
from foreign_gateway import JSON, METRICS, serving
from foreign_jobs import serving_jobs
from live_report import verdicts_of

pytestmark = [pytest.mark.live, pytest.mark.slow]
PASSED, FAILED = "passed", "failed"


def verdicts(folder: Path, profile: str, *checks: str, **how: Any) -> dict[str, Any]:
    """Of a run against the reference gateway run by itself. Skips where the machine was too busy."""
    with serving(profile, folder / "gateway", **how) as gateway:
        return run_against(gateway.target, profile, folder, *checks)


def run_against(target: Path, profile: str, folder: Path, *checks: str) -> dict[str, Any]:
    """Verdicts of a run, by check. Skips as above."""
    words = [sys.executable, "-P", "-m", "agentload", "run", profile, "--target", str(target)]
    done = subprocess.run(
        [*words, "--out", "run"], cwd=folder, capture_output=True, text=True, check=False, timeout=170
    )
    assert "Traceback" not in done.stderr
    return verdicts_of(folder / "run", *checks)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("mutant", "expected"), [(None, PASSED), ("age-of-the-newest", FAILED)])
def test_an_alert_on_its_own_queue_age_is_judged(tmp_path: Path, mutant: str | None, expected: str) -> None:
    """Of the gateway that shows the age of the newest, on the page that shows it."""
    (tmp_path / "stuck.yaml").write_text(f"{STUCK.rstrip()}\n  - bounded-memory\n")
    checks, metrics = ("queue-age-alert", "bounded-memory"), JSON if mutant else METRICS
    found = verdicts(tmp_path, str(tmp_path / "stuck.yaml"), *checks, mutant=mutant, metrics=metrics)
    assert found["queue-age-alert"]["status"] == expected, found
    assert found["bounded-memory"]["status"] == PASSED, found


@pytest.mark.timeout(200)
def test_durable_jobs_of_a_gateway_that_is_killed_by_its_file(tmp_path: Path) -> None:
    names = ("nothing-lost", "exactly-once", "lease-reclaim", "eta-honest")
    found = verdicts(tmp_path, "worker-crash", *names, jobs=True)
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, PASSED), found


LEAVERS = """\
name: leavers
about: Clients of jobs that leave, at work and in the queue behind jobs of patient ones.
phases: [{name: load, seconds: 6}]
provider: {slots: 64, latency: {first_token_ms: 500, first_token_cv: 0, inter_token_ms: 5}}
tenants:
  - name: at-work
    arrivals: {kind: bursts, size: 8, every_s: 1.2}
    workload: &short {kind: fixed, input_tokens: 24, output_tokens: 8, max_tokens: 16}
    client: {kind: quitter, leave_s: 0.4}
  - name: patient
    arrivals: {kind: bursts, size: 8, every_s: 1.2, first_s: 0.1}
    workload: *short
    client: {kind: no-retry}
  - name: in-queue
    arrivals: {kind: bursts, size: 24, every_s: 1.2, first_s: 0.2}
    workload: *short
    client: {kind: quitter, leave_s: 0.4}
checks: [cancel-upstream, no-ghosts]
drain_s: 5
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("words", "cancel", "expected"),
    [
        ((), "cancel: POST /tasks/{id}/abort", PASSED),
        (("--deaf",), "cancel: POST /tasks/{id}/abort", FAILED),
        ((), "cancel: null", "inconclusive"),
    ],
    ids=["heard", "deaf", "unmapped"],
)
def test_is_work_called_off_whose_client_has_left(
    tmp_path: Path, words: tuple[str, ...], cancel: str, expected: str
) -> None:
    """Eight workers take 0.54 s for a call: eight are at work, eight take their places, the others wait."""
    (tmp_path / "leavers.yaml").write_text(LEAVERS)
    with serving_jobs(tmp_path / "gateway", *words, more=f"  {cancel}\n") as gateway:
        found = run_against(gateway.target, "leavers.yaml", tmp_path)
    for name in ("cancel-upstream", "no-ghosts"):
        assert found[name]["status"] == expected, found
    if expected == "inconclusive":
        assert "jobs.cancel of the target file" in found["cancel-upstream"]["because"]


JOBS = """\
name: one-call
about: Jobs through two kills.
phases: [{name: load, seconds: 8}]
provider: {slots: 16, latency: {first_token_ms: 150, first_token_cv: 0.2, inter_token_ms: 5}}
gateway: {jobs: {lease_s: 1}}
tenants:
  - name: worker
    arrivals: {kind: poisson, rate: 20}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 8, max_tokens: 16}
    job:
      steps: [{tool: {name: book, side_effect: true}}, chat]
      deadline_s: 4
      poll_s: 0.1
      confirm_s: 0.2
      grace_s: 1
checks: [nothing-lost, exactly-once, lease-reclaim, eta-honest]
faults: [{kind: gateway-kill, at_s: 3, seconds: 0.3}, {kind: gateway-kill, at_s: 5, seconds: 0.3}]
drain_s: 8
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("words", "store", "expected"),
    [
        ((), "tasks.db", (PASSED, PASSED)),
        ((), ":memory:", (FAILED, None)),
        (("--twice",), "tasks.db", (None, FAILED)),
    ],
    ids=["durable", "in-memory", "twice"],
)
def test_does_accepted_work_of_somebodys_job_api_survive_a_crash(
    tmp_path: Path, words: tuple[str, ...], store: str, expected: tuple[str | None, str | None]
) -> None:
    """Of a gateway that knows no steps, keys and states of ours; it promises a lease, and no ETA."""
    declares = "  key: X-Request-Key\ndeclares: {jobs: {lease_s: 1}, without: [job_etas]}\n"
    (tmp_path / "jobs.yaml").write_text(JOBS)
    with serving_jobs(tmp_path / "gateway", *words, store=store, more=declares) as gateway:
        found = run_against(gateway.target, "jobs.yaml", tmp_path)
    for name, status in zip(("nothing-lost", "exactly-once"), expected, strict=True):
        assert status in (None, found[name]["status"]), found
    assert (found["eta-honest"]["status"], found["eta-honest"]["severity"]) == ("inconclusive", "should")
    if expected == (PASSED, PASSED):
        assert found["lease-reclaim"]["status"] == PASSED, found
