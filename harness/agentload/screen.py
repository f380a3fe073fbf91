"""Where a command prints: a console that outlives its reader."""

from __future__ import annotations

import os
import shutil
import sys
from typing import IO, Any, cast

from rich.console import Console
from rich.text import Text


class _LastingOutput:
    """Standard output for a command with something to lose: a reader that leaves (`| head`), or a full disk
    behind the output, must not end a run that could still be judged and reported."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Print it, or nothing any more once that has failed."""
        try:
            return self._stream.write(text)
        except OSError:
            self._give_up()
            return len(text)

    def flush(self) -> None:
        """As `write`."""
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        """Let the rest go nowhere, what the interpreter flushes as it ends included."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(width: int | None = None) -> Console:
    """A console without markup: names, paths and what a gateway says are printed as they are."""
    # sys.stdout is None when the process was started without one.
    file = cast(IO[str], _LastingOutput(sys.stdout)) if sys.stdout is not None else None
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width)


def warn(console: Console, text: str) -> None:
    """`warning: …`, folded between words on a terminal; anywhere else one line, whatever its length."""
    console.print(Text(f"warning: {text}", style="yellow"), soft_wrap=not console.is_terminal)


def aside() -> Console:
    """A console on standard error, for what is no part of a command's output."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none, and long lines do no harm."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns
