"""Reads the tenants' keys from where the target file says they are. SHELL: a file, or a command.

No key and no output of the command is ever part of a message.
"""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO

from agentload.errors import ProfileError
from agentload.interrupts import deferred, raising
from agentload.targets import Target
from agentload.targets._keys import (
    KeySource,
    from_environment,
    handed_over,
    read_keys,
    refuse_missing,
    variable,
)
from agentload.yaml_positions import read_text

COMMAND_S = 60.0
"""How long a command may take that makes keys."""
MOST_BYTES = 2**20
"""Of a command's output, and of all keys together: workers are handed them in their environment."""
LOOK_S = 0.05
"""How often a command is looked at that runs: one that never stops talking would fill the disk."""


def with_keys(
    target: Target,
    tenants: Sequence[str],
    environment: Mapping[str, str],
    warn: Callable[[str], None] = lambda _: None,
) -> Target:
    """The target with a key for each tenant, where it has `keys`; `warn` takes lines for the user.

    Keys that this process was handed come first. Raises ProfileError, one line, when one is missing.
    """
    if target.keys is None:
        return target
    given = handed_over(environment)
    if any(tenant not in given for tenant in tenants):
        given = _given(target.keys, tenants, environment, _where(target), warn)
        refuse_missing(given, tenants, _where(target), _hint(target.keys, given, tenants))
    keyring = {tenant: given[tenant] for tenant in tenants}
    if sum(map(len, keyring.values())) > MOST_BYTES:
        raise ProfileError(f"{_where(target)}: all keys together have more than {MOST_BYTES} bytes")
    return replace(target, keyring=keyring)


def with_own_keys(target: Target, tenants: Sequence[str], environment: Mapping[str, str]) -> Target:
    """The same in a worker, which may be on another host and then reads its own copy. Raises as above."""
    source = target.keys
    if source is not None and source.command is not None and not handed_over(environment):
        raise ProfileError(
            f"{_where(target)}: is run on the host of `agentload run` alone: "
            "for workers on other hosts say keys: {file: …} or {env: …}, and give each host its copy"
        )
    try:
        return with_keys(target, tenants, environment)
    except ProfileError as error:
        raise ProfileError(*error.lines[:-1], f"{error.lines[-1]} (each host reads its own copy)") from None


def _given(
    source: KeySource,
    tenants: Sequence[str],
    environment: Mapping[str, str],
    where: str,
    warn: Callable[[str], None],
) -> dict[str, str]:
    if source.env is not None:
        return from_environment(source.env, tenants, environment)
    if source.command is not None:
        text = _output(source.command, source.folder, tuple(tenants), where)
    else:
        path = _path(source)
        text = read_text(path)
        if (mode := _open_to_others(path)) is not None:
            warn(f"{path} holds keys and can be read by others (mode {mode:04o}): chmod 600 {path}")
    return read_keys(text, tenants, where)


def _path(source: KeySource) -> Path:
    """Beside the target file, as here, or where this process stands, as on another host."""
    beside = Path(source.folder) / str(source.file)
    here = Path(str(source.file))
    return here if not beside.exists() and here.exists() else beside


def _open_to_others(path: Path) -> int | None:
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        return mode if mode & 0o077 else None
    return None


@lru_cache
def _output(command: str, folder: str, tenants: tuple[str, ...], where: str) -> str:
    """What the command says, run once for these tenants; their names are its standard input."""
    words = [word.replace("{n}", str(len(tenants))) for word in shlex.split(command)]
    names = "".join(f"{tenant}\n" for tenant in tenants).encode()
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said:
        asked.write(names)
        asked.seek(0)
        status = _run(words, folder, asked, said, where)
        if status:
            raise ProfileError(f"{where}: ended with status {status}: run it by hand to see why")
        said.seek(0)
        raw = said.read(MOST_BYTES + 1)
    _refuse_flood(len(raw), where)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProfileError(f"{where}: what it says is not UTF-8 text") from None


def _run(words: list[str], folder: str, asked: IO[bytes], said: IO[bytes], where: str) -> int:
    """Its exit status. Neither it nor what it has started outlives a flood, its time, or us."""
    process: subprocess.Popen[bytes] | None = None
    with raising():
        try:
            with deferred():
                process = _started(words, folder, asked, said, where)
            return _watched(process, said, where)
        except BaseException:
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise


def _started(
    words: list[str], folder: str, asked: IO[bytes], said: IO[bytes], where: str
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            cwd=folder,
            stdin=asked,
            stdout=said,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ProfileError(f"{where}: cannot be run: {os.strerror(error.errno or 0).lower()}") from None


def _watched(process: subprocess.Popen[bytes], said: IO[bytes], where: str) -> int:
    until_s = time.monotonic() + COMMAND_S
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_S)
        _refuse_flood(os.fstat(said.fileno()).st_size, where)
        if time.monotonic() > until_s:
            raise ProfileError(f"{where}: has not ended within {COMMAND_S:g} s")


def _refuse_flood(size_bytes: int, where: str) -> None:
    if size_bytes > MOST_BYTES:
        raise ProfileError(f"{where}: says more than {MOST_BYTES} bytes")


def _where(target: Target) -> str:
    assert target.keys is not None
    kind = next(name for name in ("file", "command", "env") if getattr(target.keys, name) is not None)
    return f"{target.name}: keys.{kind} {target.keys.shown()}"


def _hint(source: KeySource, given: Mapping[str, str], tenants: Sequence[str]) -> str:
    """The mend, where it is more than to add the key."""
    missing = [tenant for tenant in tenants if not given.get(tenant)]
    if source.env is None or not missing:
        return ""
    return f": export {variable(source.env, missing[0])}=…"
