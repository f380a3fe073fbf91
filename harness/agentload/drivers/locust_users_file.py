"""A user's own Locust file: run it, find the class.

Imports locust: only the Locust processes may import this.

Whatever is wrong with it becomes one line that names the file and the line.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from locust import User

from agentload.drivers.locust_heard import words_of
from agentload.errors import ProfileError
from agentload.model import LocustUsers
from agentload.profile.locust_section import MAX_BYTES
from agentload.registry import did_you_mean
from agentload.yaml_positions import on_one_line
from fake_provider.named_file import read_whole


def load_class(own: LocustUsers) -> Any:
    """The class that a tenant's users are of. Raises ProfileError."""
    path = Path(own.file)
    _refuse_another(path, own.sha256)
    module = _run(path)
    found = getattr(module, own.user_class, None)
    classes = [name for name, value in vars(module).items() if _is_user(value) and not value.abstract]
    if found is None:
        hint = did_you_mean(own.user_class, classes) or " (it defines no User at all)"
        raise ProfileError(f"{shown_path(path)}: has no class '{own.user_class}'{hint}")
    if not _is_user(found):
        raise ProfileError(f"{_defined_at(path, found)}: {own.user_class} is not a subclass of locust.User")
    if found.abstract:
        raise ProfileError(f"{_defined_at(path, found)}: {own.user_class} is abstract: name a subclass of it")
    if not found.tasks:
        raise ProfileError(
            f"{_defined_at(path, found)}: {own.user_class} has no task: decorate a method with @task"
        )
    return found


def where(path: Path, error: BaseException, tb: TracebackType | None) -> str:
    """`users.py:3: ModuleNotFoundError: No module named 'nope'`: the innermost line of the file itself."""
    lines = [frame.lineno for frame in traceback.extract_tb(tb) if Path(frame.filename) == path]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    line = line or (lines[-1] if lines else None)
    at = shown_path(path) if line is None else f"{shown_path(path)}:{line}"
    return f"{at}: {type(error).__name__}: {on_one_line(words_of(error))[:300]}"


def raised_in(path: Path, tb: TracebackType | None) -> bool:
    """Whether the file itself had a part in it."""
    return any(Path(frame.filename) == path for frame in traceback.extract_tb(tb))


def shown_path(path: Path) -> str:
    """As short as it is true from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _refuse_another(path: Path, expected: str) -> None:
    try:
        content = read_whole(path, MAX_BYTES)
    except OSError as error:
        raise ProfileError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if sha256(content).hexdigest() != expected:
        raise ProfileError(
            f"{path}: is not the file that was read with the profile: let the same lie there on every host"
        )


def _run(path: Path) -> ModuleType:
    name = f"agentload_users_{sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProfileError(f"{shown_path(path)}: must be a Python file, NAME.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    for folder in (str(path.parent), os.getcwd()):  # as Locust has them, but after everybody else's modules
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit, too: it is not for the file to end the run
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ProfileError(where(path, error, error.__traceback__)) from error
    return module


def _is_user(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, User)


def _defined_at(path: Path, found: object) -> str:
    try:
        return f"{shown_path(path)}:{inspect.getsourcelines(found)[1]}"  # type: ignore[arg-type]
    except (OSError, TypeError):
        return shown_path(path)
