"""What follows a recording: judge the folder, write every report, print, choose the exit code."""

from __future__ import annotations

import msgspec
from rich.console import Console

from agentload import judge, rundir
from agentload.errors import AgentloadError, ExitCode
from agentload.interrupts import INTERRUPTED
from agentload.model import Run, Status
from agentload.report import Result, WhenInconclusive, terminal, text, write_all
from agentload.rundir import RunDir

EXIT_CODES = {
    Status.PASSED: ExitCode.PASSED,
    Status.FAILED: ExitCode.FAILED,
    Status.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """A judged run and what the shell is told of it."""

    result: Result
    exit_code: ExitCode


def conclude(
    folder: RunDir,
    console: Console,
    *,
    recorded: Run | None = None,
    ended_by: AgentloadError | None = None,
    inconclusive_passes: bool = False,
) -> Conclusion:
    """Judge what the folder holds and show it. `ended_by` is what ended the run early, if not the user.

    `recorded` spares reading the folder again. Raises RunFolderError for a folder that holds no run.
    """
    recorded = rundir.load(folder.path) if recorded is None else recorded
    verdicts = judge.judge(recorded)
    when = WhenInconclusive.PASS if inconclusive_passes else WhenInconclusive.ERROR
    result = Result.of(recorded, verdicts, judge.overall(verdicts), when)
    written = write_all(
        result,
        folder.path,
        warn=lambda line: console.print(line, style="yellow", soft_wrap=True, markup=False),
    )
    terminal.print_result(result, console, written.paths)
    code = _exit_code(result, ended_by, inconclusive_passes, console)
    if written.lost is not None and code is ExitCode.PASSED:
        console.print(
            f"not all reports could be written: {written.lost}", style="red", soft_wrap=True, markup=False
        )
        code = ExitCode.INCONCLUSIVE  # whoever reads junit.xml would find none, or that of another run
    return Conclusion(result=result, exit_code=code)


def exit_code_of(status: Status, *, inconclusive_passes: bool) -> ExitCode:
    """What a verdict means to the shell."""
    if status is Status.INCONCLUSIVE and inconclusive_passes:
        return ExitCode.PASSED
    return EXIT_CODES[status]


def _exit_code(
    result: Result, ended_by: AgentloadError | None, inconclusive_passes: bool, console: Console
) -> ExitCode:
    if result.run.interrupted == INTERRUPTED:
        console.print("interrupted: the report covers what was done until then")
        return ExitCode.INTERRUPTED
    if ended_by is not None:
        for line in ended_by.lines:
            console.print(text.printable(line), style="red", soft_wrap=True, markup=False)
        return ended_by.exit_code
    return exit_code_of(result.status, inconclusive_passes=inconclusive_passes)
