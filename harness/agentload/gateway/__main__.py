"""`python -m agentload.gateway`: the reference gateway as a process. Plain argparse, for a quick start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agentload.errors import AgentloadError, ExitCode
from agentload.gateway.log_lines import FORMATS


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped; the exit code. Errors are one line each."""
    options = _parser().parse_args(arguments)
    from agentload.gateway.serve import serve

    try:
        serve(
            options.config,
            upstream=options.upstream,
            host=options.host,
            port=options.port,
            upstream_key_env=options.upstream_key_env,
            policy=options.policy,
            mutant=options.mutant,
            jobs_db=options.jobs_db,
            parent_pipe=options.parent_pipe,
            log_level=options.log_level,
            log_format=options.log_format,
        )
    except AgentloadError as error:
        print("\n".join(error.lines), file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:  # ^C before it served, or a third one: uvicorn raises it again at its end
        return int(ExitCode.INTERRUPTED)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m agentload.gateway", description="The reference gateway.")
    parser.add_argument("--config", type=Path, help="YAML or JSON: pools, classes, tenants, limits, server")
    parser.add_argument("--upstream", required=True, metavar="URL", help="base URL of the provider")
    parser.add_argument(
        "--upstream-key-env", metavar="NAME", help="environment variable with the provider's key"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: loopback only)")
    parser.add_argument("--port", type=int, default=8080, help="0 picks a free one (default: 8080)")
    parser.add_argument("--policy", metavar="NAME", help="overrides the configuration's: sfq, fifo, …")
    parser.add_argument(
        "--mutant", metavar="NAME", help="switch off one safeguard on purpose (see `agentload list mutants`)"
    )
    parser.add_argument("--jobs-db", type=Path, metavar="PATH", help="keep durable jobs in this SQLite file")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    parser.add_argument("--log-format", default="text", choices=FORMATS, help="how a line is written")
    parser.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
