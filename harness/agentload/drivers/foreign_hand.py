"""Faults of somebody's gateway whose file allows them: it stands still, or is killed and started again.

Whatever happens, it is left running: at the end of the faults, and by a guard process if agentload itself is
killed while the gateway stands still. (Killed between the gateway's end and its new start, nobody starts it.)
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from agentload.drivers import proc
from agentload.drivers.foreign_process import ForeignProcess
from agentload.errors import UnreachableError, UsageError
from agentload.gateway_faults import Act
from agentload.targets._process import ProcessRef

GONE_S = 5.0
"""How long a process may take to end that was killed."""


class ForeignHand:
    """Does things to a target's process, and knows what is still to be undone."""

    def __init__(self, process: ForeignProcess, ready: Callable[[], None]) -> None:
        """`ready` waits until the target can be used; it raises UnreachableError."""
        self._process, self._ready = process, ready
        self._guard: Guard | None = None
        self._down = False

    def do(self, act: Act) -> None:
        """One act. Raises UnreachableError when the process is gone, or does not come up again."""
        match act:
            case Act.PAUSE:
                self._pause()
            case Act.RESUME:
                self._resume()
            case Act.KILL:
                self._kill()
            case Act.START:
                self._start()

    def mend(self) -> None:
        """Nothing is left stopped or dead. Raises UnreachableError when it does not come up again."""
        self._resume()
        if self._down:
            self._start()

    def prepare(self) -> None:
        """What a fault at its instant has no time for."""
        self._guard = self._guard or Guard()
        self._process.family()

    def _pause(self) -> None:
        family = self._found()
        self.prepare()
        assert self._guard is not None
        self._guard.watch(family)
        self._process.send(signal.SIGSTOP)

    def _resume(self) -> None:
        if self._guard is not None:
            self._process.send(signal.SIGCONT)
            self._guard.release()
            self._guard = None

    def _kill(self) -> None:
        family = self._found()
        self._down = True
        self._process.send(signal.SIGKILL)
        until_s = time.monotonic() + GONE_S
        while proc.running(family):
            if time.monotonic() > until_s:
                raise UnreachableError(f"the target's process {family[0]} does not end")
            time.sleep(0.01)

    def _start(self) -> None:
        ref = self._process.ref
        started = Started(shlex.split(str(ref.restart)), ref.folder)
        try:
            self._ready()
        except UnreachableError as error:
            raise UnreachableError(*error.lines, *started.last_words()) from None
        self._locate(started)
        self._down = False

    def _locate(self, started: Started) -> None:
        """Which process it is now: as the file says, or what we have started where that is it."""
        until_s = time.monotonic() + GONE_S
        while True:
            try:
                self._process.find()
                return
            except UsageError as error:
                if started.is_itself(self._process.ref):
                    self._process.take(started.pid)
                    return
                if time.monotonic() > until_s:
                    mend = "after a restart it is known by pid_file or name"
                    raise UnreachableError(f"{error}: {mend}", *started.last_words()) from None
            time.sleep(0.02)

    def _found(self) -> list[int]:
        family = self._process.family()
        if not family:
            raise UnreachableError("the target's process is gone: nothing can be done to it")
        return family


class Guard:
    """A process that lets others go on when ours ends, however that comes about: its input closes then."""

    def __init__(self) -> None:
        script = 'while read -r pid; do pids="$pids $pid"; done; kill -CONT $pids 2> /dev/null'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, pids: Sequence[int]) -> None:
        """These are to be stopped."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{pid}\n" for pid in pids).encode())
        self._process.stdin.flush()

    def release(self) -> None:
        """They go on now."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


_OUTLIVING: list[subprocess.Popen[bytes]] = []
"""What is meant to run on when we end; Python would complain of one that it finds forgotten."""


class Started:
    """A command that was started and outlives us: the gateway itself, or what has started it and ended."""

    def __init__(self, words: Sequence[str], folder: str) -> None:
        """Raises UnreachableError."""
        try:
            # Its output goes nowhere: it may hold keys.
            self._process = subprocess.Popen(
                list(words),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            said = os.strerror(error.errno or 0).lower()
            raise UnreachableError(f"process.restart {words[0]}: cannot be run: {said}") from None
        _OUTLIVING.append(self._process)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def is_itself(self, ref: ProcessRef) -> bool:
        """It stays, and is what the file means: not a script whose child the gateway is."""
        found = None if self._process.poll() is not None else proc.look(self.pid)
        if found is None or ref.pid_file is not None:
            return False
        return ref.name is None or proc.is_called(found, ref.name)

    def last_words(self) -> list[str]:
        """How it ended, if it did."""
        status = self._process.poll()
        return [] if status is None else [f"  | process.restart ended with status {status}: run it by hand"]
