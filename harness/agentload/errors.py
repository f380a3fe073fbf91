"""Errors that people read: one line each, saying what, where and how to mend it; and the exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What `agentload` tells the shell; documented in the README and kept true by a test."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    UNREACHABLE = 4
    INTERRUPTED = 130


class AgentloadError(Exception):
    """An error whose text is meant for the user: no traceback is shown, `exit_code` ends the process."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines: tuple[str, ...] = lines


class UsageError(AgentloadError):
    """A wrong command line or a wrong file: nothing was started."""


class ProfileError(UsageError):
    """A profile or target file that cannot be used; `lines` holds every problem found, in file order."""


class UnreachableError(AgentloadError):
    """The target gateway or the provider cannot be reached, died, or does not speak HTTP."""

    exit_code = ExitCode.UNREACHABLE


class InconclusiveError(AgentloadError):
    """The load could not be generated as planned (a lost worker, say), so nothing may be concluded."""

    exit_code = ExitCode.INCONCLUSIVE
