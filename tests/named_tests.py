"""Finds tests by the names that pages and tables give them: `tests/core/test_x.py::test_y`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def problem(node_id: str) -> str | None:
    """Why there is no such test, or None."""
    name, _, function = node_id.partition("::")
    path = ROOT / name
    if not path.is_file():
        return f"no file {name}"
    if not function.startswith("test_") or function not in _functions(path):
        return f"{name} has no test {function}"
    return None
