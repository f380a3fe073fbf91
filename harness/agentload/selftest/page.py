"""selftest.html: the kill matrix with names instead of letters, and the margins. One file, no script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from agentload.report import text
from agentload.report.html import TEMPLATES, environment
from agentload.selftest import show
from agentload.selftest.matrix import Findings, Found

_CLASSES = {
    show.NAMED: "named",
    show.ALWAYS: "always",
    show.SOMETIMES: "sometimes",
    show.ELSEWHERE: "elsewhere",
}


def render(found: Findings, command: Sequence[str]) -> bytes:
    """The page."""
    template = environment().get_template("selftest.html.j2")
    page = template.render(
        f=found,
        css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        status="passed" if found.passed else "failed",
        killed=sum(one.killed for one in found.mutants),
        notes=[line.strip() for line in show.notes(found) if line],
        rows=[_row(one, found.checks) for one in found.mutants],
        margin_rows=[_margins(one) for one in found.mutants],
        alarms=[*found.false_alarms, *found.undecided],
        command=shlex.join(["agentload", *command]) if command else "agentload selftest",
    )
    return text.printable_page(page).encode()


def _row(one: Found, checks: Sequence[str]) -> dict[str, Any]:
    return {"mutant": one, "cells": [_cell(one, check) for check in checks]}


def _cell(one: Found, check: str) -> dict[str, str]:
    mark = show.mark(one, check)
    failed = one.by_check.get(check, 0)
    title = f"{one.name}, {check}: "
    if failed:
        title += f"failed in {failed} of {one.seeds} runs of {one.scene}"
    elif check in one.elsewhere:
        title += f"failed under {', '.join(one.elsewhere[check])}"
    else:
        title += "did not fail"
    return {"mark": mark.strip(), "class_": _CLASSES.get(mark, ""), "title": title}


def _margins(one: Found) -> dict[str, Any]:
    return {"mutant": one, "cells": show.margin_cells(one.margin)}
