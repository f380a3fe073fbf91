"""Finds the instances of a seam without a list to edit.

A seam is a package whose `__init__.py` is the contract and whose other modules hold one instance each. The
instance's name is its file's name with hyphens (`victim_latency.py` is `victim-latency`). Folders named in
`AGENTLOAD_PLUGINS` (separated like PATH) may hold more: `FOLDER/checks/my_check.py`, `FOLDER/behaviours/…`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from agentload.errors import UsageError

T = TypeVar("T")
PLUGINS_VARIABLE = "AGENTLOAD_PLUGINS"


def did_you_mean(word: str, known: list[str]) -> str:
    """ " (did you mean 'x'?)", x close or with this part; else the known words, or "" when there are none."""
    close = close_to(word, known)
    if close is not None:
        return f" (did you mean '{close}'?)"
    return f" (known: {', '.join(known)})" if known else ""


def close_to(word: str, known: list[str]) -> str | None:
    """The one of the known words that is close to a word, or has it as a part."""
    close = get_close_matches(word, known, 1)
    close += [name for name in known if word in name.split("-")]
    return close[0] if close else None


PLUGIN_SEAMS = (
    "arrivals", "behaviours", "checks", "experiments", "faults", "flavours", "gateway_faults", "mutants",
    "policies", "profiles", "targets", "workloads",
)  # fmt: skip
"""The folders that a plug-in folder may hold."""


def check_plugin_folder(folder: Path) -> None:
    """Refuse a `--plugins` folder that would add nothing. Raises UsageError with the mend."""
    if not folder.is_dir():
        raise UsageError(f"--plugins {folder}: is not a folder")
    if any((folder / seam).is_dir() for seam in PLUGIN_SEAMS):
        return
    if folder.resolve().name in PLUGIN_SEAMS:
        raise UsageError(
            f"--plugins {folder}: is one level too deep (did you mean '{folder.resolve().parent}'?)"
        )
    known = ", ".join(f"{seam}/" for seam in PLUGIN_SEAMS)
    raise UsageError(f"--plugins {folder}: adds nothing: it holds none of {known}")


def plugin_folders(seam: str) -> list[Path]:
    """Existing `FOLDER/<seam>` folders, in the order of AGENTLOAD_PLUGINS."""
    folders = os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)
    paths = [Path(os.path.expanduser(folder)) / seam for folder in folders if folder]
    return [path for path in paths if path.is_dir()]


class Seam(Generic[T]):
    """The instances of one contract: classes, one per file, loaded when asked for by name."""

    def __init__(self, package: str, contract: type[T]) -> None:
        self.package = package
        self.contract = contract
        self.noun = package.rsplit(".", 1)[-1]
        self._loaded: dict[str, type[T]] = {}

    def files(self) -> dict[str, Path]:
        """Name → file, plug-ins last; a plug-in may not take a bundled name."""
        module = importlib.import_module(self.package)
        folders = [Path(cast(str, module.__file__)).parent, *plugin_folders(self.noun)]
        found: dict[str, Path] = {}
        for folder in folders:
            for path in sorted(folder.glob("*.py")):
                if not path.name.startswith("_"):
                    name = path.stem.replace("_", "-")
                    if name in found and found[name] != path:
                        raise UsageError(
                            f"{path}: {self.noun} '{name}' exists already in {found[name].parent}"
                        )
                    found[name] = path
        return found

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self.files())

    def get(self, name: str) -> type[T]:
        """The class of that name. Raises UsageError, with a suggestion, when there is none."""
        if name not in self._loaded:
            path = self.files().get(name)
            if path is None:
                raise UsageError(f"no {self.noun} named '{name}'{did_you_mean(name, self.names())}")
            self._loaded[name] = self._instance_of(self._import(path), path)
        return self._loaded[name]

    def _import(self, path: Path) -> ModuleType:
        package_folder = Path(cast(str, importlib.import_module(self.package).__file__)).parent
        if path.parent == package_folder:
            return importlib.import_module(f"{self.package}.{path.stem}")
        name = f"agentload_plugin_{self.noun}_{path.stem}"
        if not path.is_file():  # a pipe would be waited for
            raise UsageError(f"{path}: is no regular file")
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{path}: cannot be loaded as a Python module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise UsageError(f"{path}: {type(error).__name__}: {error}") from error
        return module

    def _instance_of(self, module: ModuleType, path: Path) -> type[T]:
        def is_candidate(value: Any) -> bool:
            return (
                inspect.isclass(value)
                and issubclass(value, self.contract)
                and value.__module__ == module.__name__
                and not value.__name__.startswith("_")
            )

        candidates = [value for _, value in inspect.getmembers(module, is_candidate)]
        classes = [value for value in candidates if not inspect.isabstract(value)]
        if len(classes) != 1:
            raise UsageError(
                f"{path}: must define exactly one {self.contract.__name__}, found {len(classes)}"
                + "".join(f"; {_unfinished(value)}" for value in candidates if value not in classes)
            )
        return cast(type[T], classes[0])


def _unfinished(abstract: type) -> str:
    missing = sorted(getattr(abstract, "__abstractmethods__", ()))
    return f"{abstract.__name__} does not define {', '.join(missing)}"
