"""A file that a user names, read whole: what is no file is told, never waited for.

A pipe may be named, too (`--config <(decrypt gateway.yaml.age)`, `keys: {file: /dev/stdin}`): so secrets need
not lie on a disk. It is read for `PIPE_S` at most, once for each process.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from errno import EFBIG, EINVAL, ETIMEDOUT
from functools import lru_cache
from typing import BinaryIO, cast

PIPE_S = 10.0
"""From the first look at a pipe to its end: whoever writes it may have to decrypt or fetch something."""
_LOOK_S = 0.02
_CHUNK_BYTES = 65_536
_KINDS = {
    stat.S_IFDIR: "is a directory",
    stat.S_IFCHR: "is a device, not a file",
    stat.S_IFBLK: "is a device, not a file",
    stat.S_IFSOCK: "is a socket, not a file",
    stat.S_IFIFO: "is a pipe, and must be a file: it is read more than once",
}

StrPath = str | os.PathLike[str]


def read_whole(path: StrPath, most_bytes: int, pipe_s: float = PIPE_S) -> bytes:
    """The content of a file, or of a pipe that ends within `pipe_s`.

    Raises OSError, whose `strerror` says what is wrong: with whatever the system says, for anything that is
    neither, and for more than `most_bytes`. Raises ValueError for what cannot be a file's name.
    """
    found = os.stat(path)
    if stat.S_ISFIFO(found.st_mode):
        return _piped(os.fspath(path), found.st_dev, found.st_ino, most_bytes, pipe_s)
    with open_regular(path) as stream:
        content = read_now(stream, most_bytes + 1)
    _refuse_larger(len(content), most_bytes)
    return content


@contextmanager
def open_regular(path: StrPath) -> Generator[BinaryIO]:
    """A regular file, to be read however large it is. Raises OSError, as `read_whole`, for all else."""
    require_regular(path)
    with open(path, "rb", opener=_without_waiting) as stream:
        _refuse_other(os.fstat(stream.fileno()))  # it may have been put in the file's place meanwhile
        yield stream


def read_now(stream: BinaryIO, most_bytes: int = -1) -> bytes:
    """What `open_regular` has opened, whole or so much. Raises OSError for what calls itself a regular file
    and has nothing to read yet, as /proc/kmsg."""
    content = cast("bytes | None", stream.read(most_bytes))
    if content is None:
        raise OSError(EINVAL, "is no regular file: it would have to be waited for")
    return content


def require_regular(path: StrPath, most_bytes: int | None = None) -> None:
    """For a file that others open by its name. Raises OSError, as `read_whole`, for all but a regular one."""
    # Looked at before it is opened: opening alone waits for a pipe's writer, and does things to some devices.
    found = os.stat(path)
    _refuse_other(found)
    if most_bytes is not None:
        _refuse_larger(found.st_size, most_bytes)


def _refuse_other(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(EINVAL, _KINDS.get(stat.S_IFMT(found.st_mode), "is no regular file"))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@lru_cache(maxsize=16)
def _piped(path: str, device: int, inode: int, most_bytes: int, pipe_s: float) -> bytes:  # noqa: ARG001
    """Kept by what it is: a run reads its files again after a calibration, and a pipe says all but once."""
    until_s = time.monotonic() + pipe_s
    said = bytearray()
    descriptor = _without_waiting(path, os.O_RDONLY)
    try:
        while time.monotonic() < until_s and len(said) <= most_bytes:
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                select.select([descriptor], [], [], max(0.0, until_s - time.monotonic()))
                continue
            said += chunk
            if said and not chunk:
                return bytes(said)
            if not chunk:  # nobody writes yet, or has written and left nothing: the two look alike
                time.sleep(_LOOK_S)
    finally:
        os.close(descriptor)
    _refuse_larger(len(said), most_bytes)
    happened = "whose writer has not ended" if said else "that nobody has written to"
    raise OSError(ETIMEDOUT, f"is a pipe {happened} within {pipe_s:g} s")


def _refuse_larger(size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise OSError(EFBIG, f"is larger than {most_bytes} bytes")
