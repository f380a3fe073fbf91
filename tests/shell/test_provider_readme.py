"""The examples of fake_provider/README.md, run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fake_provider
from fake_provider.marker import decode
from provider_helpers import ProviderProcess

README = (Path(fake_provider.__file__).parent / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (curl .*)$", README, re.MULTILINE)

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are written for curl"),
]


def test_every_curl_command_is_answered_as_it_should_be() -> None:
    assert len(COMMANDS) >= 6
    with ProviderProcess() as provider:
        for command in COMMANDS:
            words = shlex.split(command.replace("127.0.0.1:9000", f"127.0.0.1:{provider.port}"))
            done = subprocess.run([*words, "--fail"], capture_output=True, text=True, timeout=20, check=False)
            assert (done.returncode, done.stderr) == (0, ""), command
            assert done.stdout, command
        assert provider.ledger()["run"] == 7
        assert provider.control("GET", "faults")["faults"] == []


def test_the_marker_that_it_shows_is_one() -> None:
    [code] = re.findall(r"python -c '(from fake_provider.marker.*)'`", README)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    marker = decode(shown)
    assert marker is not None
    assert (marker.seq, marker.tenant, marker.output_tokens, len(shown.split())) == (5, 1, 20, 30)
