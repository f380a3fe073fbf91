"""Finds the one class of a contract in the file that bears its name, without a list to edit."""

from __future__ import annotations

import importlib
import inspect
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")


def names(package: str) -> list[str]:
    """All instances in a package: their files' names, with hyphens."""
    folder = Path(cast(str, importlib.import_module(package).__file__)).parent
    return sorted(
        file.stem.replace("_", "-") for file in folder.glob("*.py") if not file.stem.startswith("_")
    )


def find(package: str, contract: type[T], name: str) -> type[T]:
    """The class called `name` (hyphens or underscores). Raises LookupError with a suggestion."""
    known = names(package)
    wanted = name.replace("_", "-")
    if wanted not in known:
        noun = {"faults": "fault", "policies": "policy"}[package.rsplit(".", 1)[-1]]
        close = get_close_matches(wanted, known, 1)
        hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
        raise LookupError(f"no {noun} named '{name}' ({hint})")
    module = importlib.import_module(f"{package}.{wanted.replace('-', '_')}")
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
