"""Files that a user names: what is no file is told in one line, soon, and is never waited for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentload.drivers import tls
from agentload.drivers.foreign_process import ForeignProcess
from agentload.errors import AgentloadError, UsageError
from agentload.profile import load
from agentload.registry import Seam
from agentload.storage import DamagedFileError, read_lines
from agentload.targets._process import ProcessRef
from agentload.targets._tls import Trust
from agentload.yaml_positions import read_text
from fake_provider import named_file
from fake_provider.control_token import TokenError, read_token
from fake_provider.named_file import read_now, read_whole
from fake_provider.settings import SettingsError
from fake_provider.settings import load as load_settings

NOBODY_WRITES = "is a pipe that nobody has written to within 0.05 s"


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A named pipe with nobody at its other end."""
    monkeypatch.setattr(named_file.read_whole, "__defaults__", (0.05,))
    os.mkfifo(tmp_path / "pipe.yaml")
    return tmp_path / "pipe.yaml"


def said(error: type[Exception], read: object) -> str:
    with pytest.raises(error) as refused:
        read()  # type: ignore[operator]
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_pipe_that_nobody_writes_is_not_waited_for(pipe: Path) -> None:
    for error, read in [
        (AgentloadError, lambda: load(pipe)),  # a profile; targets, keys and gateways are read alike
        (SettingsError, lambda: load_settings(pipe)),
        (TokenError, lambda: read_token({}, None, pipe)),
        (UsageError, ForeignProcess(ProcessRef(pid_file=str(pipe)), "gw.yaml").find),
    ]:
        assert NOBODY_WRITES in said(error, read)


def test_what_others_open_by_its_name_must_be_a_file(pipe: Path) -> None:
    for trust in (Trust(ca=str(pipe)), Trust(client_cert=str(pipe)), Trust(ca="/dev/zero")):
        assert "cannot be read: is a " in said(UsageError, lambda trust=trust: tls.check(trust, "gw.yaml"))
    assert "is a pipe, and must be a file" in said(DamagedFileError, lambda: read_lines(pipe, dict))


def test_a_pipe_among_plug_ins_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arrivals").mkdir()
    os.mkfifo(tmp_path / "arrivals" / "waits.py")
    monkeypatch.setenv("AGENTLOAD_PLUGINS", str(tmp_path))
    assert "is no regular file" in said(UsageError, lambda: Seam("agentload.arrivals", object).get("waits"))


def test_a_pipe_is_read_to_its_end_and_says_the_same_again() -> None:
    reading, writing = os.pipe()
    path = f"/dev/fd/{reading}"

    def write() -> None:
        with os.fdopen(writing, "wb") as out:
            out.write(b"a: 1\n")
            out.flush()
            out.write(b"b: 2\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert [read_text(path), read_text(path)] == ["a: 1\nb: 2\n"] * 2
    writer.join()
    os.close(reading)


def test_a_pipe_that_does_not_end_is_told_and_one_that_says_too_much(pipe: Path) -> None:
    both = os.open(pipe, os.O_RDWR)
    os.write(both, b"a: 1\n")
    with pytest.raises(OSError, match=r"whose writer has not ended within 0\.05 s"):
        read_whole(pipe, 100)
    os.write(both, b"x" * 101)
    with pytest.raises(OSError, match="is larger than 100 bytes"):
        read_whole(pipe, 100)
    os.close(both)


def test_what_calls_itself_a_file_and_has_nothing_yet_is_told() -> None:
    """As /proc/kmsg does between two messages; a pipe that is not waited for answers in the same way."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    told = pytest.raises(OSError, match="it would have to be waited for")
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb"), told:
        read_now(stream, 10)


def test_devices_and_sockets_are_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
        for path, what in (("/dev/zero", "is a device, not a file"), (tmp_path / "socket", "is a socket")):
            with pytest.raises(OSError, match=what):
                read_whole(path, 10)


def test_a_ledger_into_a_pipe_that_nobody_reads_is_refused(pipe: Path) -> None:
    words = [sys.executable, "-m", "fake_provider", "--port", "0", "--ledger", str(pipe)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert f"--ledger {pipe}: is a pipe that nobody reads" in ended.stderr
