"""Where and how a run was made: for its manifest, so that it can be made again."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from agentload import __version__


def circumstances(
    command: Iterable[str], target: Mapping[str, Any], packages: Iterable[str] = ()
) -> dict[str, Any]:
    """The manifest's fields beside profile and plan; `packages` are those whose versions matter."""
    versions = {"agentload": __version__, "python": platform.python_version()}
    return {
        "command": ["agentload", *command],
        "target": dict(target),
        "versions": versions | {name: _version(name) for name in packages},
        "machine": {"system": platform.platform(), "processors": os.cpu_count() or 0},
    }


def bundled(mutant: str | None) -> dict[str, Any]:
    """The target of a run against the reference gateway, whole or with a safeguard switched off."""
    return {"kind": "bundled"} | ({} if mutant is None else {"mutant": mutant})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
