"""The target's own process on this host, as its file names it: found, measured, stopped, killed.

Nobody else's is ever touched: it must be of this user, and be named in the target file.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from agentload.drivers import proc
from agentload.drivers.heartbeat import resident_bytes
from agentload.errors import UsageError
from agentload.targets._process import ProcessRef
from fake_provider.named_file import read_whole

FRESH_S = 1.0
"""How long a look at who belongs to it holds: workers come and go."""
_LISTED = 5
_MAX_BYTES = 4_096
_WORDS = 60


class ForeignProcess:
    """A process and its children, found anew when it has been replaced."""

    def __init__(self, ref: ProcessRef, where: str) -> None:
        """`where` begins messages. Looks nowhere yet."""
        self.ref, self._where = ref, where
        self._root: proc.Process | None = None
        self._family: list[int] = []
        self._looked_s = 0.0

    def find(self) -> int:
        """Its number. Raises UsageError when there is none, more than one, or it is not this user's."""
        found = self._one()
        if found.user != os.getuid():
            raise UsageError(f"{self._where}: process {found.pid} ({found.name}) is not yours")
        if found.pid in proc.ancestors(os.getpid()):
            raise UsageError(f"{self._where}: process {found.pid} is agentload itself, or what started it")
        self._root, self._looked_s = found, 0.0
        return found.pid

    def take(self, pid: int) -> None:
        """This is it now, whatever the file says: we have just started it."""
        self._root, self._looked_s = proc.look(pid), 0.0

    def family(self, *, fresh: bool = False) -> list[int]:
        """It and its children; empty when it is gone."""
        now_s = time.monotonic()
        if fresh or now_s - self._looked_s > FRESH_S:
            self._family, self._looked_s = self._look(), now_s
        return self._family

    def resident_bytes(self) -> int:
        """Memory of all of them together, shared pages counted for each; 0 when it is gone."""
        return sum(resident_bytes(pid) for pid in self.family())

    def send(self, number: signal.Signals) -> None:
        """A signal to all of them at once, the eldest first, then to those that they started meanwhile."""
        told: set[int] = set()
        left = self.family()
        while left:
            for pid in left:
                _send(pid, number)
            told.update(left)
            left = [pid for pid in self.family(fresh=True) if pid not in told]

    def _look(self) -> list[int]:
        if self._root is None or proc.look(self._root.pid) is None or not self._is_same(self._root):
            try:
                self.find()
            except UsageError:
                return []
        assert self._root is not None
        return proc.running(proc.family(self._root.pid))

    def _is_same(self, known: proc.Process) -> bool:
        now = proc.look(known.pid)
        return now is not None and not now.zombie and now.started == known.started

    def _one(self) -> proc.Process:
        if not proc.ROOT.joinpath("self").exists():
            raise UsageError(f"{self._where}: this system does not say which processes there are (no /proc)")
        ref = self.ref
        if ref.name is not None:
            return self._named(ref.name)
        pid = ref.pid if ref.pid is not None else self._written(str(ref.pid_file))
        found = proc.look(pid)
        if found is None or found.zombie:
            source = "" if ref.pid_file is None else f", which {ref.pid_file} names,"
            raise UsageError(f"{self._where}: process {pid}{source} does not run")
        return found

    def _written(self, path: str) -> int:
        try:
            text = read_whole(path, _MAX_BYTES).decode("ascii", "replace")[:32].split()
        except OSError as error:
            said = (error.strerror or "").lower()
            raise UsageError(f"{self._where}: pid_file {path}: cannot be read: {said}") from None
        if not text or not text[0].isdecimal() or not 1 < int(text[0]) < 2**22:
            raise UsageError(f"{self._where}: pid_file {path}: holds no process number")
        return int(text[0])

    def _named(self, name: str) -> proc.Process:
        """The one process of that name that is no child of another of that name."""
        ours, us = proc.ancestors(os.getpid()) | set(proc.family(os.getpid())), os.getuid()
        found = [
            one
            for one in proc.everyone()
            if one.user == us and one.pid not in ours and not one.zombie and proc.is_called(one, name)
        ]
        pids = {one.pid for one in found}
        eldest = [one for one in found if one.parent not in pids]
        if not eldest:
            raise UsageError(f"{self._where}: no process of yours is called {name}")
        if len(eldest) > 1:
            raise UsageError(
                f"{self._where}: {len(eldest)} processes are called {name}: {_listed(eldest)}: "
                "say which with pid or pid_file"
            )
        return eldest[0]


def _listed(processes: Sequence[proc.Process]) -> str:
    """By number and what is harmless of the command line: arguments may be secrets."""
    some = ", ".join(f"{one.pid} ({_program(one)})" for one in processes[:_LISTED])
    return f"{some}, …" if len(processes) > _LISTED else some


def _program(process: proc.Process) -> str:
    said = proc.words(process.pid)[:1] or [process.name]
    where = ""
    with suppress(OSError):
        where = f" in {os.readlink(proc.ROOT / str(process.pid) / 'cwd')}"
    return f"{said[0][:_WORDS]}{where[:_WORDS]}"


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
