"""Children: ready, talk, die; nothing is left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentload.drivers.processes import Child, check_file_limit, parse_event, raise_file_limit
from agentload.errors import UnreachableError, UsageError
from process_facts import is_running, wait_until

READY = "import json, sys; print(json.dumps({'event': 'ready', 'port': 7}), flush=True);"
UNTIL_PIPE_CLOSES = READY + "sys.stdin.read()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + READY + "import time; time.sleep(60)"
)


def start(tmp_path: Path, code: str) -> Child:
    return Child.start("a child", ["-c", code], tmp_path / "logs" / "child.log")


def test_ready_and_gone(tmp_path: Path) -> None:
    with start(tmp_path, UNTIL_PIPE_CLOSES) as child:
        assert child.wait_ready()["port"] == 7
        assert child.alive()
    assert not child.alive()


def test_closing_the_pipe_is_enough_to_end_it(tmp_path: Path) -> None:
    with start(tmp_path, UNTIL_PIPE_CLOSES) as child:
        child.wait_ready()
        assert child.process.stdin is not None
        child.process.stdin.close()
        assert child.wait(10) == 0


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with start(tmp_path, STUBBORN) as child:
        child.wait_ready()
        assert child.terminate(grace_s=0.1) == -signal.SIGKILL


def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    with start(tmp_path, UNTIL_PIPE_CLOSES) as child:
        assert os.getsid(child.pid) == child.pid


def test_a_child_that_dies_early_is_quoted(tmp_path: Path) -> None:
    code = "raise SystemExit('profile: no such thing')"
    with start(tmp_path, code) as child, pytest.raises(UnreachableError) as caught:
        child.wait_ready()
    assert "a child ended with status 1" in str(caught.value)
    assert "no such thing" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_child_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    with start(tmp_path, "import sys; sys.stdin.read()") as child:
        with pytest.raises(UnreachableError, match=r"was not ready after 0.2 s"):
            child.wait_ready(timeout_s=0.2)
        assert not child.alive()


def test_lines_that_are_no_events_go_to_the_log(tmp_path: Path) -> None:
    code = "print('hello'); print('[1]'); print('{\"a\": 1}');" + READY
    with start(tmp_path, code) as child:
        assert child.wait_ready()["event"] == "ready"
        assert list(child.events()) == []
    assert child.log_tail() == ["hello", "[1]", '{"a": 1}']


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_loses_what_a_child_logs_and_no_event() -> None:
    code = "for _ in range(9): print('no event' * 9_000)\nprint('{\"event\": \"ready\"}', flush=True)"
    with Child.start("chatty", ["-c", code], Path("/dev/full")) as child:
        assert child.wait_ready(10) == {"event": "ready"}


def test_talking_with_a_child(tmp_path: Path) -> None:
    code = READY + "[print(json.dumps({'event': l.strip()}), flush=True) for l in sys.stdin]"
    with start(tmp_path, code) as child:
        child.wait_ready()
        child.send("stop")
        assert child.next_event(10) == {"event": "stop"}
        assert child.next_event(0.01) is None
        child.terminate()
        child.send("nobody hears this")


def test_a_program_that_does_not_exist_is_an_error_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(UnreachableError, match="cannot start"):
        start(tmp_path, "pass")


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_is_killed_with_its_parent(tmp_path: Path) -> None:
    parent_code = (
        "import pathlib, sys, time\n"
        "from agentload.drivers.processes import Child\n"
        f"child = Child.start('deaf', ['-c', {STUBBORN!r}], pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "child.wait_ready(); print(child.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_running(pid))


def test_file_limit_is_raised_and_checked() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        assert raise_file_limit(2048) >= min(2048, hard)
        with pytest.raises(UsageError, match="ulimit -n"):
            check_file_limit(1 << 40)
        check_file_limit(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_parse_event() -> None:
    assert parse_event(b'{"event": "x"}\n') == {"event": "x"}
    assert parse_event(b"{") is None
    assert parse_event(b'"event"') is None
