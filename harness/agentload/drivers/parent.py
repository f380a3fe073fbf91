"""The pipe from the parent, under gevent: lines are commands, its end is our end."""

from __future__ import annotations

import os
from collections.abc import Callable

import gevent
import gevent.os as gevent_os

STDIN = 0


def exit_with_parent() -> None:
    """End this process at once when standard input closes."""
    gevent.spawn(read_lines, lambda _line: None, lambda: os._exit(1))


def read_lines(on_line: Callable[[str], None], on_end: Callable[[], None]) -> None:
    """Hand on every line of standard input, then say that it has closed. For a greenlet."""
    gevent_os.make_nonblocking(STDIN)
    rest = b""
    while data := _read():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace").strip())
    on_end()


def _read() -> bytes:
    try:
        return bytes(gevent_os.nb_read(STDIN, 4096))
    except OSError:
        return b""
