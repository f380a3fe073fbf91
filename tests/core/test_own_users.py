"""Tenants whose load is somebody's own Locust file: in profiles, plans and verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from agentload import catalogue, judge, locust, profile, simulate
from agentload.checks.retry_amplification import RetryAmplification
from agentload.errors import ProfileError, UsageError
from agentload.model import Outcome, Profile, Run, Spec, Status
from agentload.plan import draw
from own_users import PROFILE, USERS, loaded, written


def problems(folder: Path, old: str, new: str, users: str = USERS) -> tuple[str, ...]:
    with pytest.raises(ProfileError) as raised:
        loaded(folder, PROFILE.replace(old, new, 1), users)
    return raised.value.lines


def test_the_file_is_found_beside_the_profile_wherever_that_is_read_from(tmp_path: Path) -> None:
    [_, own] = loaded(tmp_path).tenants
    assert own.locust is not None
    assert own.locust.file == str(tmp_path / "users.py")
    assert (own.locust.user_class, own.locust.users, own.locust.spawn_rate) == ("Quick", 5, None)
    assert own.workload is own.arrivals is own.users is None
    assert own.awaits_answers


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("users.py", "nobody.py", "12:20: tenants[1].locust.file: no such file: "),
        ("users.py", '"a\\0b"', "12:20: tenants[1].locust.file: "),
        ("users: 5", "users: 0", "12:51: tenants[1].locust.users: must be >= 1, got 0"),
        ("users: 5", "user: 5", "12:44: tenants[1].locust.user: unknown key (did you mean 'users'?)"),
        ("class: Quick, ", "", "12:13: tenants[1].locust.class: is required"),
        (
            "locust: {file: users.py, class: Quick, users: 5}",
            "locust: users.py",
            "12:13: tenants[1].locust: ",
        ),
        ("during: [beside]", "workload: {kind: chat}", "11:15: tenants[1].workload: is for load"),
        ("during: [beside]", "model: large", "11:12: tenants[1].model: is for load that is planned"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, line: str) -> None:
    found = problems(tmp_path, old, new)
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path / 'homegrown.yaml'}:{line}"), found


def test_what_is_no_python_is_told_with_its_line(tmp_path: Path) -> None:
    found = problems(tmp_path, "", "", users="import os\n\nclass :\n")
    said = "tenants[1].locust.file: is not Python: users.py:3: invalid syntax"
    assert found == (f"{tmp_path / 'homegrown.yaml'}:12:20: {said}",)


def test_a_plan_is_of_one_code(tmp_path: Path) -> None:
    """The fingerprint knows the content, and not where it lies."""
    before = draw(loaded(tmp_path), 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert draw(loaded(elsewhere), 1).fingerprint == before.fingerprint
    assert draw(loaded(elsewhere, users=USERS + "\n# changed\n"), 1).fingerprint != before.fingerprint
    more = PROFILE.replace("users: 5", "users: 6")
    assert draw(loaded(elsewhere, more), 1).fingerprint != before.fingerprint
    assert before.arrivals == draw(profile.parse(_planned_only(), "p.yaml"), 1).arrivals


def _planned_only() -> str:
    before, _, after = PROFILE.partition("  - name: own\n")
    return before + after[after.index("checks:") :]


def test_it_is_shown_as_what_it_is(tmp_path: Path) -> None:
    shown = "\n".join(catalogue.profile_lines(str(written(tmp_path)), None, ()))
    assert f"5 users of Quick in {tmp_path / 'users.py'}, not planned during beside" in shown


@pytest.mark.parametrize("seeds", [1, 2])
def test_python_code_has_no_virtual_time(tmp_path: Path, seeds: int) -> None:
    options = simulate.Options(profile=str(written(tmp_path)), seeds=seeds, out=tmp_path / "out")
    with pytest.raises(UsageError) as raised:
        simulate.run(options)
    assert "own: its load is Python code" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_file_that_agentload_does_not_play_sends_its_messages_as_they_are() -> None:
    assert locust.marked(object(), "hello", output_tokens=4) == "hello"
    assert locust.headers(object()) == {}


def test_calls_without_a_marker_are_laid_at_their_door(tmp_path: Path) -> None:
    _, run = RetryAmplification.example()
    run.profile = loaded(tmp_path).model_copy(update={"checks": (Spec(kind="retry-amplification"),)})
    half = run.records[-1].seq // 2
    for record in run.records:
        record.tenant, record.outcome = ("own" if record.seq < half else "planned"), Outcome.ANSWERED
    for call in run.ledger:
        call.tenant = "own" if call.seq is not None and call.seq < half else "planned"
    assert _said_of_unmarked(run, {"own"}) == OWN_CODE
    assert _said_of_unmarked(run, {"own", "planned"}) == f"{OWN_CODE} Or else: g{GATEWAY[1:]}"
    assert _said_of_unmarked(run, {"planned"}) == GATEWAY


OWN_CODE = "Of own (Quick): does their code put `marked(self, …)` of agentload.locust around each message?"
GATEWAY = "Guardrail, shadow or rewritten prompts? Let the gateway pass the last user message on unchanged"


def _said_of_unmarked(run: Run, tenants: set[str]) -> str:
    """What is to be mended where these tenants' calls carry no marker."""
    ledger = [replace(c, tenant=None, seq=None) if c.tenant in tenants else c for c in run.ledger]
    lost = sum(call.tenant is None for call in ledger)
    [verdict] = judge.judge(replace(run, ledger=ledger, unattributed=lost))
    assert verdict.status is Status.INCONCLUSIVE
    because, _, mend = verdict.because.partition(": at most 1 % may be such. ")
    assert because == f"{lost} of {len(ledger)} provider calls cannot be traced to a request"
    return mend


def test_retries_inside_somebodys_own_code_are_not_the_gateways() -> None:
    check, run = RetryAmplification.counterexample()
    assert check.judge(run).status is Status.FAILED
    run.profile = _as_own_code(run.profile)
    verdict = check.judge(run)
    assert verdict.status is Status.INCONCLUSIVE
    assert "at most 0 requests" in verdict.because


def _as_own_code(given: Profile) -> Profile:
    own = {"file": "/users.py", "class": "A", "sha256": "0" * 64}
    changed = [{**tenant.model_dump(), "locust": own} for tenant in given.tenants]
    return Profile.model_validate({**given.model_dump(), "tenants": changed})
