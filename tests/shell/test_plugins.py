"""A check, profile, mutant, behaviour and fault from a folder outside the repository, one file each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentload.errors import ExitCode

FILES = {
    "checks/no_teapot.py": '''
"""Is the gateway a teapot?"""

from agentload.checks import Check
from agentload.model import Run, Status, Verdict
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, undecided


class NoTeapot(Check):
    """Passes when no answer has status 418."""

    def judge(self, run: Run) -> Verdict:
        answers = [record.status for record in run.records if record.status]
        if len(answers) < 20:
            return undecided(self, "too few answers")
        count = answers.count(418)
        status = Status.FAILED if count else Status.PASSED
        return conclude(self, status, f"{count} teapots", measured=count, bound=0, n=len(answers))

    @classmethod
    def counterexample(cls):
        return cls(), _run(418)

    @classmethod
    def too_few(cls):
        return cls(), _run(418, requests=2)

    @classmethod
    def example(cls):
        return cls(), _run(503)


def _run(status, requests=40):
    build = RunBuilder(profile())
    for k in range(requests):
        build.refused("a", 100 * k, status=status)
    return build.run()
''',
    "mutants/teapot.py": '''
"""Refuses to brew coffee."""

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.mutants import Mutant


class Teapot(Mutant):
    """RFC 2324 taken for a fallback: every refusal is a 418, which no client knows what to do with."""

    row = "R10"
    breaks = "overload looks like coffee"
    killed_by = "no-teapot"
    profile = "outside"

    def parts(self):
        return Parts(lifecycle=_Short)


class _Short(RequestLifecycle):
    def _fail(self, now_ns, failure, *, cancel=False):
        if failure.status == 503:
            failure = msgspec.structs.replace(failure, status=418)
        return super()._fail(now_ns, failure, cancel=cancel)
''',
    "behaviours/shrug.py": '''
"""Does not care."""

from agentload.behaviours import Behaviour


class Shrug(Behaviour):
    """`shrug`: whatever."""

    draws = False

    def retry_delay_s(self, attempt, random):
        return None
''',
    "faults/hiccup.py": '''
"""The provider hiccups."""

from fake_provider.call import Reason
from fake_provider.faults import Fault, RefuseCall


class Hiccup(Fault):
    """Refuses every call."""

    def at_arrival(self, call):
        return RefuseCall(503, Reason.OVERLOADED)
''',
    "profiles/outside.yaml": """\
name: outside
about: Brought along from another folder.
phases:
  - {name: calm, seconds: 1.5}
  - {name: trouble, seconds: 1.5}
provider: {slots: 8, latency: {first_token_ms: 10, inter_token_ms: 1}}
faults: [{kind: hiccup, phase: trouble}]
tenants:
  - name: app
    arrivals: {kind: uniform, rate: 40}
    workload: {kind: fixed, output_tokens: 4}
    client: shrug
checks: [no-teapot]
""",
}


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "elsewhere" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "elsewhere"


def agentload(plugins: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentload", "--plugins", str(plugins), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=plugins.parent, timeout=100, check=False
    )


def verdicts(folder: Path) -> dict[str, str]:
    facts = json.loads((folder / "report.json").read_bytes())
    return {check["check"]: check["status"] for check in facts["checks"]}


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("profiles", "outside"),
        ("checks", "no-teapot"),
        ("mutants", "teapot"),
        ("behaviours", "shrug"),
        ("faults", "hiccup"),
    ],
)
def test_what_is_brought_along_is_listed(plugins: Path, what: str, name: str) -> None:
    listed = agentload(plugins, "list", what).stdout.splitlines()
    assert any(line.split()[0] == name for line in listed)


def test_all_of_it_is_simulated(plugins: Path) -> None:
    sound = agentload(plugins, "simulate", "outside", "--out", "sound")
    assert sound.returncode == ExitCode.PASSED, sound.stdout + sound.stderr
    broken = agentload(plugins, "simulate", "outside", "--mutant", "teapot", "--out", "broken")
    assert broken.returncode == ExitCode.FAILED, broken.stdout + broken.stderr
    assert verdicts(plugins.parent / "broken") == {"no-teapot": "failed"}
    assert "mutant teapot" in broken.stdout


def test_a_folder_whose_check_is_not_at_hand_keeps_its_reports(plugins: Path) -> None:
    agentload(plugins, "simulate", "outside", "--out", "sound")
    folder = plugins.parent / "sound"
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    command = [sys.executable, "-m", "agentload", "judge", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert "check 'no-teapot' cannot be made here" in done.stderr
    assert "--plugins" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert agentload(plugins, "judge", str(folder)).returncode == ExitCode.PASSED


@pytest.mark.live
def test_all_of_it_runs_live(plugins: Path) -> None:
    broken = agentload(plugins, "run", "outside", "--mutant", "teapot", "--out", "broken")
    assert broken.returncode == ExitCode.FAILED, broken.stdout + broken.stderr
    assert verdicts(plugins.parent / "broken") == {"no-teapot": "failed"}
    facts = json.loads((plugins.parent / "broken" / "manifest.json").read_bytes())
    assert facts["target"] == {"kind": "bundled", "mutant": "teapot"}
    assert "mutant teapot" in (plugins.parent / "broken" / "summary.md").read_text()
    assert "mutant teapot" in (plugins.parent / "broken" / "report.html").read_text()


def test_the_selftest_kills_a_mutant_that_was_brought_along(plugins: Path) -> None:
    done = agentload(plugins, "selftest", "--quick", "--mutants", "teapot", "--seeds", "1", "--out", "self")
    assert done.returncode == ExitCode.PASSED, done.stdout + done.stderr
    assert "1 of 1 mutants killed" in done.stdout


def test_a_mutant_that_says_too_little_is_one_line(plugins: Path) -> None:
    path = plugins / "mutants" / "teapot.py"
    path.write_text(path.read_text().replace('    killed_by = "no-teapot"\n', ""))
    done = agentload(plugins, "simulate", "outside", "--mutant", "teapot", "--out", "x")
    assert done.returncode == ExitCode.USAGE
    assert "a mutant must say its killed_by" in done.stderr
    assert "Traceback" not in done.stderr
