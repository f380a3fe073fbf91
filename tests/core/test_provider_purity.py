"""The core of the provider is told the time and given its randomness; it never goes and gets them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fake_provider

FOLDER = Path(fake_provider.__file__).parent
SHELL = {
    "bounded_http",
    "__main__",
    "app",
    "collector",
    "control",
    "endpoint",
    "heartbeat",
    "host",
    "ledger_file",
    "named_file",
    "openai_background",
    "server",
    "tool_endpoint",
    "transport",
}
IMPURE = {
    "asyncio",
    "httpx",
    "gc",
    "random",
    "selectors",
    "signal",
    "socket",
    "starlette",
    "threading",
    "time",
    "uvicorn",
}
FILES = sorted(FOLDER.rglob("*.py"))


def imported(file: Path) -> set[str]:
    """The top-level packages that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_nothing_imports_agentload_and_only_the_shell_waits(file: Path) -> None:
    names = imported(file)
    assert not names & {"agentload", "locust", "gevent"}
    if file.parent != FOLDER or file.stem not in SHELL:
        assert not names & IMPURE


def test_every_file_of_the_shell_exists() -> None:
    assert {file.stem for file in FILES if file.parent == FOLDER} >= SHELL
