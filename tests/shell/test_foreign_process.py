"""Which process a target file means; what is done to it, and that it is left as it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from agentload.drivers import proc
from agentload.drivers.foreign_hand import ForeignHand, Guard
from agentload.drivers.foreign_process import ForeignProcess
from agentload.errors import UnreachableError, UsageError
from agentload.gateway_faults import Act
from agentload.order import Options, prepare
from agentload.targets._process import ProcessRef
from process_facts import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def program(folder: Path, name: str) -> str:
    """`sleep` by another name."""
    shutil.copy(str(shutil.which("sleep")), folder / name)
    return str(folder / name)


@contextmanager
def started(*words: str) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def found(ref: ProcessRef) -> ForeignProcess:
    return ForeignProcess(ref, "gw.yaml: process")


def refusal(ref: ProcessRef) -> str:
    with pytest.raises(UsageError) as raised:
        found(ref).find()
    return str(raised.value)


def states(pids: list[int]) -> set[str]:
    return {psutil.Process(pid).status() for pid in pids}


@contextmanager
def family_of_three(folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A master that does nothing but wait for its two workers."""
    worker = program(folder, "ob-worker")
    with started("/bin/sh", "-c", f"{worker} 100 & {worker} 100 & wait") as master:
        wait_until(lambda: len(proc.family(master.pid)) == 3)
        yield master


def test_a_name_means_one_process(tmp_path: Path) -> None:
    sleeper, ref = program(tmp_path, "ob-sleeper"), ProcessRef(name="ob-sleeper")
    assert refusal(ref) == "gw.yaml: process: no process of yours is called ob-sleeper"
    # Not a child of this one: those are agentload's own.
    with apart(sleeper) as first:
        assert found(ref).find() == first
        with apart(sleeper) as second:
            said = refusal(ref)
            assert said.startswith("gw.yaml: process: 2 processes are called ob-sleeper: ")
            assert str(first) in said
            assert str(second) in said
            assert said.endswith("say which with pid or pid_file")


@contextmanager
def apart(sleeper: str) -> Generator[int]:
    """Started by somebody who has ended, so that it is nobody's child here; its number."""
    script = f"{sleeper} 100 > /dev/null 2>&1 & echo $!"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    try:
        wait_until(lambda: psutil.Process(pid).name() == Path(sleeper).name)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_master_and_its_workers_are_one_process_by_name(tmp_path: Path) -> None:
    worker = program(tmp_path, "ob-master")
    script = f'exec -a ob-master /bin/sh -c "{worker} 100 & {worker} 100 & wait"'
    done = subprocess.run(
        ["/bin/bash", "-c", f"({script}) > /dev/null 2>&1 & echo $!"],
        capture_output=True,
        text=True,
        check=True,
    )
    master = int(done.stdout)
    try:
        wait_until(lambda: len(proc.family(master)) == 3)
        assert found(ProcessRef(name="ob-master")).find() == master
    finally:
        for pid in proc.family(master):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: no such file or directory"),
        ("", "holds no process number"),
        ("1", "holds no process number"),
        ("x\n", "holds no process number"),
        ("4194303", "does not run"),
    ],
)
def test_a_pid_file_that_names_nobody(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "gw.pid"
    if text is not None:
        file.write_text(text)
    assert problem in refusal(ProcessRef(pid_file=str(file)))


def test_agentload_is_never_its_own_target() -> None:
    for pid in (os.getpid(), os.getppid()):
        assert "is agentload itself, or what started it" in refusal(ProcessRef(pid=pid))


def test_somebody_elses_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with started(program(tmp_path, "ob-other"), "100") as process:
        monkeypatch.setattr("agentload.drivers.foreign_process.os.getuid", lambda: 12345)
        assert "is not yours" in refusal(ProcessRef(pid=process.pid))
        assert "no process of yours" in refusal(ProcessRef(name="ob-other"))


def test_it_is_looked_for_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "gw.yaml").write_text("base_url: http://127.0.0.1:9\nprocess: {pid_file: gw.pid}\n")
    with pytest.raises(UsageError, match=r"gw\.yaml: process: pid_file .*gw\.pid: cannot be read"):
        prepare(Options(profile="steady", target=str(tmp_path / "gw.yaml")))


def test_a_kill_needs_to_know_how_to_start_it_again(tmp_path: Path) -> None:
    with started(program(tmp_path, "ob-plain"), "100") as process:
        (tmp_path / "gw.yaml").write_text(f"base_url: http://127.0.0.1:9\nprocess: {{pid: {process.pid}}}\n")
        with pytest.raises(
            UsageError, match=r"faults\[0\]: gateway-kill needs process\.restart in the target file"
        ):
            prepare(Options(profile="worker-crash", target=str(tmp_path / "gw.yaml")))


def test_memory_is_that_of_the_whole_family(tmp_path: Path) -> None:
    with family_of_three(tmp_path) as master:
        whole = found(ProcessRef(pid=master.pid)).resident_bytes()
        each = [psutil.Process(pid).memory_info().rss for pid in proc.family(master.pid)]
        assert whole == pytest.approx(sum(each), rel=0.2)
        assert whole > max(each)
    assert found(ProcessRef(pid=master.pid)).resident_bytes() == 0


def test_all_of_it_stands_still_and_goes_on(tmp_path: Path) -> None:
    with family_of_three(tmp_path) as master:
        family = proc.family(master.pid)
        hand = ForeignHand(found(ProcessRef(pid=master.pid)), lambda: None)
        hand.do(Act.PAUSE)
        wait_until(lambda: states(family) == {"stopped"})
        hand.do(Act.RESUME)
        wait_until(lambda: states(family) == {"sleeping"})
        hand.do(Act.PAUSE)
        hand.mend()
        wait_until(lambda: states(family) == {"sleeping"})
        hand.mend()


def test_a_guard_lets_it_go_on_when_who_paused_it_is_gone(tmp_path: Path) -> None:
    """As when agentload is killed: the kernel closes the guard's input."""
    with family_of_three(tmp_path) as master:
        family = proc.family(master.pid)
        guard = Guard()
        guard.watch(family)
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: states(family) == {"stopped"})
        time.sleep(0.1)
        assert states(family) == {"stopped"}
        guard.release()
        wait_until(lambda: states(family) == {"sleeping"})


def restartable(tmp_path: Path, script: str) -> ProcessRef:
    sleeper = program(tmp_path, "ob-restarted")
    (tmp_path / "start").write_text(f"#!/bin/sh\n{script.format(sleeper=sleeper)}\n")
    (tmp_path / "start").chmod(0o700)
    subprocess.run([str(tmp_path / "start")], cwd=tmp_path, check=True)
    return ProcessRef(pid_file=str(tmp_path / "gw.pid"), restart="./start", folder=str(tmp_path))


DAEMON = "{sleeper} 100 > /dev/null 2>&1 &\necho $! > gw.pid"


def test_it_is_killed_and_started_again(tmp_path: Path) -> None:
    process = found(restartable(tmp_path, DAEMON))
    before = process.find()
    asked: list[int] = []
    hand = ForeignHand(process, lambda: asked.append(1))
    hand.do(Act.KILL)
    assert proc.running([before]) == []
    assert process.family() == []
    hand.do(Act.START)
    try:
        assert asked == [1]
        assert (tmp_path / "gw.pid").read_text() != f"{before}\n"
        hand.do(Act.KILL)
        hand.mend()  # the run ended between the two
        assert len(process.family(fresh=True)) == 1
    finally:
        process.send(signal.SIGKILL)


def test_a_command_that_stays_is_the_gateway_itself(tmp_path: Path) -> None:
    sleeper = program(tmp_path, "ob-stays")
    with started(sleeper, "100") as first:
        process = found(ProcessRef(pid=first.pid, restart=f"{sleeper} 100", folder=str(tmp_path)))
        process.find()
        hand = ForeignHand(process, lambda: None)
        hand.do(Act.KILL)
        hand.do(Act.START)
        [again] = process.family(fresh=True)
        assert again != first.pid
        assert psutil.Process(again).name() == "ob-stays"
        process.send(signal.SIGKILL)


@pytest.mark.parametrize(
    ("restart", "problem"),
    [("./none", "process.restart ./none: cannot be run: no such file"), ("false", "ended with status 1")],
)
def test_a_gateway_that_does_not_come_up_again_is_said(tmp_path: Path, restart: str, problem: str) -> None:
    def never() -> None:
        time.sleep(0.2)
        raise UnreachableError("the target gateway at http://127.0.0.1:9: nothing listens there")

    with started(program(tmp_path, "ob-gone"), "100") as process:
        ref = ProcessRef(pid=process.pid, restart=restart, folder=str(tmp_path))
        hand = ForeignHand(found(ref), never)
        hand.do(Act.KILL)
        with pytest.raises(UnreachableError) as raised:
            hand.do(Act.START)
        assert problem in str(raised.value)
        with pytest.raises(UnreachableError, match="the target's process is gone"):
            hand.do(Act.PAUSE)
