"""What the kernel says of processes (proc(5)). Linux only: elsewhere nothing is found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/proc")
_NAME_BYTES = 15
"""The kernel keeps no more of a process's name."""


class Process(NamedTuple):
    """One process, as it was when it was looked at."""

    pid: int
    parent: int
    user: int
    """Real user id."""
    name: str
    """Of its program, at most 15 characters."""
    zombie: bool
    """It has ended, and nobody has asked how."""
    started: int
    """In clock ticks since boot: the same number at another time is another process."""


def look(pid: int) -> Process | None:
    """The process with that number, or None."""
    with suppress(OSError, ValueError, IndexError, KeyError):
        status = _fields((ROOT / str(pid) / "status").read_text("utf-8", "replace"))
        # The name in `stat` may hold anything, brackets too: fields are counted from behind it.
        after_name = (ROOT / str(pid) / "stat").read_text("utf-8", "replace").rpartition(") ")[2].split()
        return Process(
            pid=pid,
            parent=int(status["PPid"]),
            user=int(status["Uid"].split()[0]),
            name=status["Name"],
            zombie=after_name[0] == "Z",
            started=int(after_name[19]),
        )
    return None


def everyone() -> list[Process]:
    """All processes that may be looked at."""
    with suppress(OSError):
        found = (look(int(entry.name)) for entry in ROOT.iterdir() if entry.name.isdecimal())
        return [process for process in found if process is not None]
    return []


def family(pid: int) -> list[int]:
    """A process and all that descend from it, the eldest first."""
    children: dict[int, list[int]] = {}
    for process in everyone():
        children.setdefault(process.parent, []).append(process.pid)
    found = [pid]
    for one in found:
        found += children.get(one, ())
    return found


def ancestors(pid: int) -> set[int]:
    """A process, and all that it descends from."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        process = look(pid)
        pid = 0 if process is None else process.parent
    return found


def words(pid: int) -> list[str]:
    """Its command line."""
    with suppress(OSError):
        return (ROOT / str(pid) / "cmdline").read_text("utf-8", "replace").split("\0")[:-1]
    return []


def is_called(process: Process, name: str) -> bool:
    """By its program's name, or what its command line begins with."""
    if process.name == name[:_NAME_BYTES]:
        return True
    said = words(process.pid)[:1]
    return bool(said) and os.path.basename(said[0]) == name


def running(pids: Iterable[int]) -> list[int]:
    """Those that have not ended."""
    looked_at = (look(pid) for pid in pids)
    return [process.pid for process in looked_at if process is not None and not process.zombie]


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}
