"""Processes that never outlive us: start, wait until ready, stop. Plain threads, no gevent.

A child prints JSON lines on its standard output, beginning with `{"event": "ready", ...}`. Everything else it
has to say goes to a log file in the run folder. It ends when its standard input, a pipe that we hold, closes
(`--parent-pipe`), and on Linux the kernel kills it when we die (PR_SET_PDEATHSIG, prctl(2)).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from agentload.errors import UnreachableError, UsageError

QUOTED_LOG_LINES = 8
_PR_SET_PDEATHSIG = 1
FILES_BESIDE_CONNECTIONS = 256
"""File descriptors that a process needs for other things than requests."""

Event = dict[str, Any]
"""One JSON object that a child printed; `event` names its kind."""


class Child:
    """One process that we started."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"{name}-output", daemon=True)
        self._reader.start()

    @classmethod
    def start(
        cls,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        lasting_thread: bool = False,
    ) -> Self:
        """Start `python ARGUMENTS --parent-pipe` in its own session: a terminal's ^C does not reach it.

        `environment` replaces ours when given. `lasting_thread`: the calling thread, if it is not the main
        one, will outlive the child. Raises UnreachableError when it cannot be started.
        """
        # -P: a `json.py` in the user's folder is the user's, not ours to import.
        command = [sys.executable, "-P", *arguments, "--parent-pipe"]
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as errors:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=None if environment is None else dict(environment),
                    start_new_session=True,
                    preexec_fn=_death_signal(lasting_thread),  # noqa: PLW1509
                )
        except OSError as error:
            raise UnreachableError(f"{name}: cannot start {' '.join(command)}: {error}") from error
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def alive(self) -> bool:
        """It has not ended."""
        return self.process.poll() is None

    def wait_ready(self, timeout_s: float = 20.0) -> Event:
        """The ready event. Raises UnreachableError, quoting the log, when it dies first or takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            event = self.next_event(left_s)
            if event is not None and event.get("event") == "ready":
                return event
            if event is None and self._has_ended():
                break
        return self._give_up(timeout_s)

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next JSON line it prints; None when none comes in time, or none will come any more."""
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            self._events.put(None)
        return event

    def events(self) -> Iterator[Event]:
        """Its JSON lines, until it closes its output."""
        while (event := self.next_event()) is not None:
            yield event

    def send(self, line: str) -> None:
        """Write a line to its standard input; a child that has ended does not mind."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(OSError):
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()

    def wait(self, timeout_s: float) -> int | None:
        """Its exit status (negative: the signal), or None when it still runs after `timeout_s`."""
        try:
            return self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self, grace_s: float = 3.0) -> int:
        """Close its pipe and ask it to end (SIGTERM); after `grace_s` kill it. Returns its exit status."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        if self.alive():
            self.process.terminate()
            if self.wait(grace_s) is None:
                self.process.kill()
        status = self.process.wait()
        self._reader.join(timeout=grace_s)
        return status

    def log_tail(self, lines: int = QUOTED_LOG_LINES) -> list[str]:
        """The last lines that it logged."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 16_384))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                event = parse_event(line)
                if event is None:
                    self._note(line)
                else:
                    self._events.put(event)
        self._events.put(None)

    def _note(self, line: bytes) -> None:
        """To the log. A disk that takes no more must not end the reader: no event would be heard any more,
        and the child would wait for ever for room in the pipe."""
        with suppress(OSError), self.log.open("ab", buffering=0) as log:
            log.write(line)

    def _has_ended(self) -> bool:
        return self.wait(0.5) is not None

    def _give_up(self, timeout_s: float) -> Event:
        status = self.process.poll()
        self.terminate(grace_s=1.0)
        happened = f"was not ready after {timeout_s:g} s" if status is None else f"ended with status {status}"
        quoted = [f"  | {line}" for line in self.log_tail()]
        raise UnreachableError(f"{self.name} {happened} (its log: {self.log})", *quoted)


def parse_event(line: bytes) -> Event | None:
    """The JSON object on a line, or None when there is none."""
    with suppress(ValueError):
        value = json.loads(line)
        if isinstance(value, dict) and "event" in value:
            return value  # pyright: ignore[reportUnknownVariableType]
    return None


def die_with_parent() -> None:
    """For a child to call as it starts: be killed when the parent dies. Linux only; elsewhere nothing."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _death_signal(lasting_thread: bool) -> Callable[[], None] | None:
    # The kernel sends the signal when the THREAD that started the child ends: from any but the main thread,
    # or one that stays, that would kill a healthy child.
    lasting = lasting_thread or threading.current_thread() is threading.main_thread()
    if sys.platform != "linux" or not lasting:
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return arm


def raise_file_limit(wanted: int = 65_536) -> int:
    """Raise this process's limit of open files towards `wanted`; children inherit it. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))
            return ceiling
    return wanted if soft == resource.RLIM_INFINITY else soft


def check_file_limit(connections: int) -> None:
    """Raises UsageError when this process may not open so many connections at once."""
    limit = raise_file_limit(connections + FILES_BESIDE_CONNECTIONS)
    if limit < connections + FILES_BESIDE_CONNECTIONS:
        raise UsageError(
            f"open files: the limit is {limit}, {connections} connections at once need "
            f"{connections + FILES_BESIDE_CONNECTIONS}: raise it (ulimit -n) or lower the in-flight cap"
        )


def check_port_free(port: int, option: str, mend: str = "") -> None:
    """Raises UsageError when something listens on this loopback port already; 0, any port, is always free.

    `mend`: what to do where it is in use; `{port}` in it is the port.
    """
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        instead = f": {mend.format(port=port)}" if mend and error.errno == errno.EADDRINUSE else ""
        raise UsageError(f"{option} {port}: cannot be listened on: {why}{instead}") from None
