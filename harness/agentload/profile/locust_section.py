"""A tenant's `locust:`: users of a class of somebody's own Locust file.

    locust: {file: users.py, class: ChatUser, users: 5, spawn_rate: 1}

The file is looked at here, and not run: that needs a process of its own (`drivers/locust_check.py`).
"""

from __future__ import annotations

import ast
import os
import warnings
from hashlib import sha256
from pathlib import Path as FilePath
from typing import Any

from pydantic import Field

from agentload.model import LocustUsers, Noun
from agentload.validation import validate
from agentload.yaml_positions import Document, Path, on_one_line, shown

MAX_BYTES = 1_000_000
_NOT_BESIDE = ("arrivals", "users", "think_s", "workload", "client", "clients", "model", "job")


class _Locust(Noun):
    file: str = Field(min_length=1)
    user_class: str = Field(alias="class", min_length=1)
    users: int = Field(default=1, ge=1, le=10_000)
    spawn_rate: float | None = Field(default=None, gt=0, le=1e6)


def read_locust(document: Document, tenant: Path, raw: dict[str, Any]) -> LocustUsers | None:
    """The section of a tenant, or None after noting every problem in the document."""
    for key in _NOT_BESIDE:
        if raw.get(key) is not None:
            message = "is for load that is planned: leave it out beside locust, whose code says what it sends"
            document.complain((*tenant, key), message)
    path = (*tenant, "locust")
    written = validate(document, path, _Locust, raw["locust"])
    content = None if written is None else _content(document, (*path, "file"), written.file)
    if written is None or content is None:
        return None
    found = {"file": str(_beside(document, written.file)), "sha256": sha256(content).hexdigest()}
    return LocustUsers.model_validate({**written.model_dump(), **found})


def _beside(document: Document, file: str) -> FilePath:
    """Relative to the profile."""
    return FilePath(os.path.abspath(FilePath(document.file).parent / os.path.expanduser(file)))


def _content(document: Document, path: Path, file: str) -> bytes | None:
    """What is in it, if it is Python at all."""
    try:
        where = _beside(document, file)
        if not where.is_file():
            document.complain(path, f"no such file: {shown(str(where))}")
            return None
        if where.stat().st_size > MAX_BYTES:
            document.complain(path, f"is longer than {MAX_BYTES} bytes")
            return None
        content = where.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        document.complain(path, f"cannot be read: {on_one_line(reason)}")
    except (SyntaxError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else 1
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        document.complain(path, f"is not Python: {on_one_line(file)}:{line}: {on_one_line(reason)}")
    else:
        return content
    return None
