"""The ledger as a file of JSON lines, written so often that a kill -9 loses a quarter of a second at most."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path

import msgspec

from fake_provider.ledger import Entry

FLUSH_S = 0.2


class LedgerFile:
    """Appends every ended call. A disk that refuses (full, say) costs lines, which are counted, nothing else.

    Raises OSError when the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines_written = 0
        self.lines_lost = 0
        self.error: str | None = None
        """Why lines were lost; the first reason stays."""
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._torn = False
        # Without waiting: a pipe that nobody reads is refused (ENXIO), one whose reader is slow costs lines.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._fd: int | None = os.open(path, flags, 0o644)

    def append(self, entry: Entry) -> None:
        """An entry is final; it reaches the file with the next flush."""
        self._lines.append(self._encoder.encode(entry))

    async def run(self) -> None:
        """Flushes every 200 ms until it is cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()

    def flush(self) -> None:
        """Hands what has gathered to the operating system."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            # A write that failed half-way left half a line: end it, so that only that one is unreadable.
            self._write((b"\n" if self._torn else b"") + b"\n".join(lines) + b"\n")
        except OSError as error:
            self._lost(len(lines), error)
        else:
            self.lines_written += len(lines)

    def close(self) -> None:
        """Flushes for the last time; closing twice does nothing."""
        if self._fd is not None:
            self.flush()
            os.close(self._fd)
            self._fd = None

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            raise OSError(errno.EBADF, "the file is closed")
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self._torn = written < len(view)
            view = view[written:]

    def _lost(self, lines: int, error: OSError) -> None:
        self.lines_lost += lines
        if self.error is None:
            self.error = f"{self.path}: {error.strerror}"
            print(f"fake_provider: ledger lines are being lost: {self.error}", file=sys.stderr, flush=True)
