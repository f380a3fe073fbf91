"""Finds the one class of a contract in the file that bears its name, without a list to edit."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

T = TypeVar("T")
VARIABLE = "AGENTLOAD_PLUGINS"
"""Folders with more, separated like PATH; the harness sets it from `--plugins`."""


def folders(noun: str) -> list[Path]:
    """The existing `FOLDER/noun` of the folders in AGENTLOAD_PLUGINS."""
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [path for one in named if one and (path := Path(os.path.expanduser(one)) / noun).is_dir()]


def names(package: str, more: Sequence[Path] = ()) -> list[str]:
    """All instances in a package, and in `more` folders: their files' names, with hyphens."""
    return sorted(_files(package, more))


def find(package: str, contract: type[T], name: str, more: Sequence[Path] = ()) -> type[T]:
    """The class called `name` (hyphens or underscores). Raises LookupError with a suggestion."""
    files = _files(package, more)
    wanted = name.replace("_", "-")
    if wanted not in files:
        noun = {"faults": "fault", "policies": "policy"}[package.rsplit(".", 1)[-1]]
        close = get_close_matches(wanted, sorted(files), 1)
        hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(files))}"
        raise LookupError(f"no {noun} named '{name}' ({hint})")
    module = _load(package, files[wanted])
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__ and issubclass(value, contract)
    ]
    if len(classes) != 1:
        raise LookupError(
            f"{module.__file__} must define exactly one {contract.__name__}, found {len(classes)}"
        )
    return classes[0]


def _files(package: str, more: Sequence[Path]) -> dict[str, Path]:
    """Name → file. Our own come first: nobody takes a bundled name."""
    found: dict[str, Path] = {}
    for folder in (_folder(package), *more):
        for file in sorted(folder.glob("*.py")):
            if not file.stem.startswith("_"):
                found.setdefault(file.stem.replace("_", "-"), file)
    return found


def _folder(package: str) -> Path:
    return Path(cast(str, importlib.import_module(package).__file__)).parent


def _load(package: str, file: Path) -> ModuleType:
    """The file as a module, once. Its name ends with the file's, as if it lay in the package."""
    if file.parent == _folder(package):
        return importlib.import_module(f"{package}.{file.stem}")
    name = f"{package.replace('.', '_')}_plugins.{file.stem}"
    module = sys.modules.get(name)
    if module is not None and module.__file__ == str(file):
        return module
    if not file.is_file():  # a pipe would be waited for
        raise LookupError(f"{file}: is no regular file")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LookupError(f"{file}: cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise LookupError(f"{file}: {type(error).__name__}: {error}") from error
    return module
