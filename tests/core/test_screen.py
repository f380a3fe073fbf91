"""What is printed, and for whom."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agentload import screen

LONG = "the tenants' slots add up to more than the provider has, by a good deal, and that is for you to mend"


@pytest.mark.parametrize("terminal", [True, False])
def test_warnings_are_folded_for_people_and_one_line_for_files(terminal: bool) -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=terminal, color_system=None)
    screen.warn(console, LONG)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert " ".join(line.rstrip() for line in lines) == f"warning: {LONG}"
    assert len(lines) == (2 if terminal else 1)


def test_what_is_said_aside_is_no_output() -> None:
    assert screen.aside().stderr
