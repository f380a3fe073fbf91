"""`python -m agentload` and the `agentload` script: errors become one line, never a traceback."""

from __future__ import annotations

import os
import sys

from agentload import interrupts
from agentload.errors import AgentloadError, ExitCode


def main() -> None:
    """Run the command line and leave with the exit code of `errors.ExitCode`."""
    if sys.argv[1:] == ["--version"]:  # before any heavy import: scripts ask this often
        from agentload import __version__

        print(f"agentload {__version__}")
        return
    try:
        from agentload.cli import app, plugins_first

        code = app(plugins_first(sys.argv[1:]), prog_name="agentload", standalone_mode=False)
        if code == ExitCode.INTERRUPTED and not interrupts.handled:  # Typer took the KeyboardInterrupt
            raise KeyboardInterrupt
        sys.exit(code)
    except AgentloadError as error:
        for line in error.lines:
            print(_printable(line), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:  # `agentload list | head`: the reader has left, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.PASSED)
    except Exception as error:
        if os.environ.get("AGENTLOAD_DEBUG"):
            raise
        said = _line(error)
        print(said or f"agentload: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        if said is None:
            print("This is a bug in agentload; AGENTLOAD_DEBUG=1 shows where.", file=sys.stderr)
        _leave(ExitCode.INCONCLUSIVE if said is None else ExitCode.USAGE)


def _printable(line: str) -> str:
    """It may hold what a stranger said, which must not move the terminal's cursor."""
    if line.isprintable():
        return line
    from agentload.report.text import printable

    return printable(line)


def _line(error: Exception) -> str | None:
    """What a person can do something about, in one line; None for what can only be a bug."""
    if isinstance(error, OSError):
        where = f"{str(error.filename)[:100]!r}: " if error.filename else ""
        return f"agentload: {where}{(error.strerror or str(error)).lower()}"
    if isinstance(error, RecursionError):
        return "agentload: the input is nested too deeply"
    said = getattr(error, "format_message", None)  # Typer's own: an unknown option, a value of the wrong kind
    if said is None:
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(said())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "agentload"
    return f"{command}: {' '.join(said().split())} (see {command} --help)"


def _leave(code: ExitCode) -> None:
    """Without a last word on a standard output that takes none."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
