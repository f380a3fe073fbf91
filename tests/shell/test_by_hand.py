"""Servers and workers started by a person, at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from agentload.errors import ExitCode


def started_at_a_terminal(arguments: Sequence[str], lines: int) -> tuple[dict[str, object], str]:
    """The ready line, and the first lines of standard error, of a process whose output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    try:
        assert process.stderr is not None
        said = "".join(process.stderr.readline() for _ in range(lines))
        ready = json.loads(os.read(ours, 4096).decode().splitlines()[0])
    finally:
        process.terminate()
        process.communicate(timeout=20)
        os.close(ours)
    return ready, said


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "fake_provider", "--port", "0"],
        ["-m", "agentload.gateway", "--port", "0", "--upstream", "http://127.0.0.1:1"],
    ],
    ids=["provider", "gateway"],
)
def test_a_person_is_told_the_url(arguments: list[str]) -> None:
    ready, said = started_at_a_terminal(arguments, 1)
    assert ready["event"] == "ready"
    assert said == f"listening on http://127.0.0.1:{ready['port']}/v1/chat/completions\n"


def test_the_provider_names_its_other_endpoints_and_its_control() -> None:
    ready, said = started_at_a_terminal(["-m", "fake_provider", "--port", "0"], 2)
    for path in ("v1/responses", "v1/messages", "_fake/stats"):
        assert f"http://127.0.0.1:{ready['port']}/{path}" in said.splitlines()[1]


@pytest.mark.parametrize("module", ["fake_provider", "agentload provider"])
def test_both_ways_to_start_the_provider_have_the_same_port(module: str) -> None:
    arguments = ["-m", *module.split(), "--help"]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    assert re.search(r"default:\s+9000", done.stdout)


def test_an_upstream_without_its_scheme_is_refused() -> None:
    command = [sys.executable, "-m", "agentload", "serve", "--upstream", "127.0.0.1:9471"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.strip().endswith("(did you mean 'http://127.0.0.1:9471'?)")


def test_a_worker_says_at_once_that_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "agentload", "worker", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("agentload worker:"))
    finally:
        process.kill()
        process.communicate()
    assert f"cannot connect to 127.0.0.1:{port} yet (connection refused)" in line
