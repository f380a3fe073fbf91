"""The reference gateway run by itself, as somebody's: a target that agentload knows from its file alone."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agentload import profile
from process_facts import wait_until
from real_gateways import free_port, listens

JSON = "metrics: {url: /debug/queue, waiting: waiting, queue_age_s: oldest_age_s, in_flight: in_flight}\n"
"""The same as a JSON page has it."""
METRICS = """\
metrics:
  url: /metrics
  waiting: agentload_gateway_waiting
  queue_age_s: agentload_gateway_queue_age_seconds
  in_flight: agentload_gateway_in_flight
"""


@dataclass
class Foreign:
    target: Path
    port: int
    process: subprocess.Popen[bytes]


@contextmanager
def serving(
    profile_name: str, folder: Path, *, jobs: bool = False, mutant: str | None = None, metrics: str = METRICS
) -> Generator[Foreign]:
    """`agentload serve` with the profile's own limits; its target file names metrics, health and process."""
    chosen = profile.load(profile.find(profile_name), [])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gateway.json").write_text(chosen.gateway.model_dump_json(by_alias=True))
    port, provider = free_port(), free_port()
    words = [sys.executable, "-P", "-m", "agentload.gateway", "--config", "gateway.json", "--port", str(port)]
    words += ["--upstream", f"http://127.0.0.1:{provider}", *(["--jobs-db", "jobs.db"] if jobs else [])]
    words += [] if mutant is None else ["--mutant", mutant]
    # As an init script would: the gateway's number is in its pid file, and the script ends.
    script = folder / "start"
    script.write_text(f"#!/bin/sh\n{shlex.join(words)} > gateway.log 2>&1 &\necho $! > gateway.pid\n")
    script.chmod(0o700)
    target = folder / "target.yaml"
    target.write_text(
        f"base_url: http://127.0.0.1:{port}\nhealth: /healthz\n{metrics}"
        f"process: {{pid_file: gateway.pid, restart: ./start}}\n"
        f"tenant_header: X-Tenant\ndeclares: profile\nprovider: {{listens: '127.0.0.1:{provider}'}}\n"
    )
    process = subprocess.Popen(["./start"], cwd=folder)
    process.wait()
    try:
        wait_until(lambda: listens(port), 20)
        yield Foreign(target, port, process)
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((folder / "gateway.pid").read_text()), signal.SIGKILL)
