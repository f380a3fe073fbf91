"""Files that survive a crash: JSON lines appended in whole writes, and files replaced in one step.

What goes wrong with a disk is said in one line, with the mend.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from agentload.errors import AgentloadError, UsageError
from fake_provider.named_file import open_regular, read_now

T = TypeVar("T")
BATCH = 1_000
"""Lines in one write, at most."""


class StorageError(AgentloadError):
    """The run folder cannot be written: disk full, no permission."""


class DamagedFileError(UsageError):
    """A file that should hold JSON and does not."""


class JsonLines:
    """Appends structs to a file, one JSON object per line; what `extend` has returned from survives a crash.

    Every thousand lines are one write to the operating system. Threads may share it. A disk that fills up
    keeps the lines that it has taken whole: half a line would damage the file once others follow it.
    """

    def __init__(self, path: Path) -> None:
        """Raises StorageError when the file cannot be opened."""
        self.path = path
        self.lines = 0
        self._encoder = msgspec.json.Encoder()
        self._turn = threading.Lock()
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise storage_error(error, path, "") from error

    def append(self, item: msgspec.Struct) -> None:
        """One line. Raises StorageError."""
        self.extend((item,))

    def extend(self, items: Iterable[msgspec.Struct]) -> None:
        """Many lines. Raises StorageError, saying how many lines are safe."""
        remaining = iter(items)
        while encoded := [self._encoder.encode(item) for item in islice(remaining, BATCH)]:
            with self._turn:
                self._write(b"\n".join(encoded) + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            append_lines(self._file.fileno(), data)
        except TornError as torn:
            self.lines += data.count(b"\n", 0, torn.whole)
            raise storage_error(torn.because, self.path, f" after {self.lines} lines") from torn
        self.lines += data.count(b"\n")

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def storage_error(error: OSError, path: Path, detail: str) -> StorageError:
    """An OSError in one line that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"{path}: the disk is full{detail}: free some space, or choose another folder with --out"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{path}: may not be written{detail}: choose another folder with --out")
    return StorageError(f"{path}: cannot be written{detail}: {error.strerror or error}")


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new. Raises StorageError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise storage_error(error, path, "") from error


class TornError(Exception):
    """Not all lines could be written; `whole` bytes of them were, and stay."""

    def __init__(self, because: OSError, whole: int) -> None:
        super().__init__(str(because))
        self.because, self.whole = because, whole


def append_lines(descriptor: int, data: bytes) -> None:
    """Whole lines, at the end of a file that nobody else appends to meanwhile. Raises TornError."""
    view, written = memoryview(data), 0
    try:
        while written < len(data):  # `os.write` may take only a part, a full disk above all
            written += os.write(descriptor, view[written:])
    except OSError as error:
        whole = data.rfind(b"\n", 0, written) + 1
        if whole < written:
            with suppress(OSError):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - (written - whole))
        raise TornError(error, whole) from error


def read_lines(path: Path, kind: type[T]) -> tuple[list[T], int]:
    """Everything in a JSON-lines file, and how many torn lines were skipped (0 or 1). No file: nothing.

    Raises DamagedFileError, with the line, for a line that is damaged though others follow it.
    """
    try:
        lines = _whole(path).split(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    torn = lines.pop()
    decoder = msgspec.json.Decoder(kind)
    items: list[T] = []
    for position, line in enumerate(lines, 1):
        try:
            items.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise DamagedFileError(f"{path}:{position}: damaged: {error}") from error
    return items, 1 if torn else 0


def _whole(path: Path) -> bytes:
    """However large: a run's records may be. A pipe or a device in a run's folder is none of its files."""
    with open_regular(path) as stream:
        return read_now(stream)


def count_lines(path: Path) -> int:
    """Whole lines in a file, a torn last one counted as one more. No file: 0. Raises DamagedFileError."""
    try:
        content = _whole(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def read_json(path: Path, kind: type[T]) -> T:
    """A whole file. Raises DamagedFileError."""
    try:
        return msgspec.json.decode(_whole(path), type=kind)
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise DamagedFileError(f"{path}: damaged: {error}") from error
