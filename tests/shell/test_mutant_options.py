"""`--mutant NAME` wherever it can be given: what is wrong with it is one line, and nothing is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentload.errors import ExitCode

GATEWAY = ["agentload.gateway", "--upstream", "http://127.0.0.1:9", "--port", "0"]


def refused(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert list(cwd.iterdir()) == []
    return done.stderr.strip()


@pytest.mark.parametrize(
    "arguments",
    [["agentload", "run", "steady"], ["agentload", "simulate", "steady"], GATEWAY],
    ids=lambda arguments: arguments[1],
)
def test_a_mutant_that_there_is_not(arguments: list[str], tmp_path: Path) -> None:
    said = refused(*arguments, "--mutant", "one-shared-qeue", cwd=tmp_path)
    assert said == "no mutants named 'one-shared-qeue' (did you mean 'one-shared-queue'?)"


def test_somebody_elses_gateway_cannot_be_mutated(tmp_path: Path) -> None:
    target = ["--target", "http://127.0.0.1:9", "--mutant", "one-shared-queue"]
    assert "takes no --target" in refused("agentload", "run", "steady", *target, cwd=tmp_path)
