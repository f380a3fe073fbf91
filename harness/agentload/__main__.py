"""`python -m agentload` and the `agentload` script: errors become one line, never a traceback."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and leave with the exit code of `errors.ExitCode`."""
    if sys.argv[1:] == ["--version"]:  # before any heavy import: scripts ask this often
        from agentload import __version__

        print(f"agentload {__version__}")
        return
    from agentload.errors import AgentloadError, ExitCode

    try:
        from agentload.cli import app, plugins_first

        app(plugins_first(sys.argv[1:]))
    except AgentloadError as error:
        for line in error.lines:
            print(line, file=sys.stderr)
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
        print(f"agentload: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("This is a bug in agentload; AGENTLOAD_DEBUG=1 shows where.", file=sys.stderr)
        sys.exit(ExitCode.INCONCLUSIVE)


if __name__ == "__main__":
    main()
