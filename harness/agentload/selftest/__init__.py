"""Who judges the judge? Breaks the reference gateway in every known way, and looks whether the checks notice.

Leaves `selftest.jsonl`, one line per run, appended as each is judged (so ^C leaves what was done),
`selftest.json`, everything that follows from them, and `selftest.html`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import Console

from agentload import screen
from agentload.errors import ExitCode, UsageError
from agentload.interrupts import interruptible
from agentload.report import terminal
from agentload.rundir import JsonLines, RunDir, write_file
from agentload.selftest import matrix, page, show
from agentload.selftest.cases import Program, program
from agentload.selftest.matrix import Findings
from agentload.selftest.play import Company, Played


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as typed."""

    quick: bool = False
    mutants: tuple[str, ...] = ()
    """Names; none: all, and the twins."""
    seeds: int | None = None
    out: Path | None = None
    golden: Path | None = None
    command: tuple[str, ...] = ()


def run(options: Options) -> int:
    """The command. Returns the exit code: 0 only when every mutant was killed and nothing else was."""
    console = screen.console()
    if not console.is_terminal:  # a file or a log has room
        console = screen.console(show.WIDE)
    terminal.never_fail_on_letters(console)
    if options.golden is not None and options.mutants:
        raise UsageError("--golden: is of all mutants; leave out --mutants")
    planned = program(options.mutants, options.seeds, quick=options.quick)
    folder = RunDir.create("selftest", datetime.now(), out=options.out)
    console.print(
        f"{len(planned.subjects.mutants)} mutants, {len(planned.subjects.twins)} twins and the reference "
        f"under {len(planned.scenes)} loads: {len(planned.cases)} runs, into {folder.path}",
        soft_wrap=True,
    )
    played, stopped = _play(planned, folder, console)
    findings = matrix.find(
        planned, played, quick=options.quick, interrupted=stopped, partial=bool(options.mutants)
    )
    paths = _write(findings, folder, options)
    if options.golden is not None and not stopped:
        paths.append(_json(options.golden, matrix.golden(findings, played)))
    show.findings(findings, console, paths)
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.PASSED if findings.passed else ExitCode.FAILED


def _play(planned: Program, folder: RunDir, console: Console) -> tuple[list[Played], bool]:
    company = Company(planned.cases)
    played: list[Played] = []
    with (
        interruptible(company.stop),
        JsonLines(folder.path / "selftest.jsonl") as lines,
        show.progress(len(planned.cases), console) as watch,
    ):
        for one in company.played():
            played.append(one)
            lines.append(one)
            watch(one)
    return played, company.stopped and len(played) < len(planned.cases)


def _write(findings: Findings, folder: RunDir, options: Options) -> list[Path]:
    facts = msgspec.to_builtins(findings)
    facts_path = _json(folder.path / "selftest.json", facts)
    html = folder.path / "selftest.html"
    write_file(html, page.render(findings, options.command))
    return [html, facts_path, folder.path / "selftest.jsonl"]


def _json(path: Path, content: object) -> Path:
    write_file(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    return path


__all__: Sequence[str] = ["Options", "run"]
