"""A worker on "another host": started by hand, with the command that the run prints."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentload.errors import ExitCode

pytestmark = pytest.mark.live

PROFILE = """\
name: small
about: One quiet tenant.
phases: [{name: only, seconds: 1}]
provider: {slots: 4}
tenants:
  - name: quiet
    arrivals: {kind: uniform, rate: 30}
    workload: {kind: fixed, output_tokens: 2}
checks: [own-answer]
"""


def test_the_printed_command_joins_the_run(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(PROFILE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    program = [sys.executable, "-u", "-m", "agentload"]
    arguments = ["run", "small.yaml", "--out", "out", "--expect-workers", "1", "--bind", f"127.0.0.1:{port}"]
    run = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    worker = None
    try:
        assert run.stdout is not None
        invitation = next(line for line in run.stdout if "agentload worker" in line)
        command = re.findall(r"agentload (worker \S+)", invitation)
        assert command == [f"worker 127.0.0.1:{port}"]
        worker = subprocess.Popen(
            [*program, *command[0].split()], stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        said, _ = run.communicate(timeout=60)
        assert run.returncode in (ExitCode.PASSED, ExitCode.INCONCLUSIVE), said  # a busy machine may be late
        _, log = worker.communicate(timeout=30)
    finally:
        for process in (run, worker):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
    assert f"agentload worker: 127.0.0.1:{port} answers; waiting for the run to begin" in log
    assert json.loads((tmp_path / "out" / "generator.json").read_text())["issued"] == 30
