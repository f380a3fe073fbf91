"""Keys that a command makes reach the gateway through every worker, and nothing that is written or shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentload import rundir
from agentload.errors import ExitCode
from agentload.model import Outcome
from foreign_gateway import serving

pytestmark = pytest.mark.live
KEYS = {"app": "sk-of-app-5b1c9a", "batch": "sk-of-batch-77e0d2"}
PROFILE = """\
name: keyed
about: Two tenants with keys.
phases: [{name: load, seconds: 2}]
provider: {slots: 16, overflow: queue, latency: {first_token_ms: 20, first_token_cv: 0, inter_token_ms: 1}}
gateway: {tenants: {app: {key_env: OB_KEY_APP}, batch: {key_env: OB_KEY_BATCH}}}
tenants:
  - name: app
    arrivals: {kind: constant, rate: 20}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 4, max_tokens: 24}
  - name: batch
    arrivals: {kind: constant, rate: 20}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 4, max_tokens: 24}
checks: [own-answer]
"""


def run(folder: Path, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-P",
        "-m",
        "agentload",
        "run",
        "keyed.yaml",
        "--target",
        str(target),
        "--out",
        "run",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OB_KEY")}
    return subprocess.run(
        [*words, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def test_they_are_sent_by_every_worker_and_seen_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keyed.yaml").write_text(PROFILE)
    for tenant, key in KEYS.items():
        monkeypatch.setenv(f"OB_KEY_{tenant.upper()}", key)
    with serving(str(tmp_path / "keyed.yaml"), tmp_path / "gateway") as gateway:
        text = gateway.target.read_text().replace("tenant_header: X-Tenant\n", "")
        gateway.target.write_text(f"{text}keys: {{command: './make {{n}} s3cret'}}\n")
        make = tmp_path / "gateway/make"
        make.write_text("#!/bin/sh\n" + "\n".join(f"echo {tenant}={key}" for tenant, key in KEYS.items()))
        make.chmod(0o700)
        done = run(tmp_path, gateway.target, "--out", "run", "--workers", "2")
        assert done.returncode in (ExitCode.PASSED, ExitCode.INCONCLUSIVE), done.stdout + done.stderr
        make.write_text("#!/bin/sh\necho app=wrong-key-1; echo batch=wrong-key-2")
        refused = run(tmp_path, gateway.target, "--out", "refused")
    recorded = rundir.load(tmp_path / "run")
    assert {record.outcome for record in recorded.records} == {Outcome.ANSWERED}
    assert {record.worker for record in recorded.records} == {0, 1}
    assert refused.returncode == ExitCode.UNREACHABLE
    assert 'answered 401 ("send a known key as' in refused.stderr
    assert "are the tenants' keys known to it? `keys:` or `headers:` of" in refused.stderr
    assert "no load was sent: refused is removed" in refused.stdout
    assert not (tmp_path / "refused").exists()
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    for said in (written, (done.stdout + done.stderr + refused.stdout + refused.stderr).encode()):
        assert not [word for word in (*KEYS.values(), "s3cret", "wrong-key") if word.encode() in said]
