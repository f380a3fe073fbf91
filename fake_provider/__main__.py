"""`python -m fake_provider`: serves the provider on one port until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import socket
import sys
import time
from ipaddress import ip_address
from pathlib import Path

import uvloop
from pydantic import ValidationError

from fake_provider.address import split_bind
from fake_provider.config import ProviderConfig
from fake_provider.control_token import TOKEN_VARIABLE, TokenError, read_token
from fake_provider.core import Provider
from fake_provider.host import Host
from fake_provider.ledger_file import LedgerFile
from fake_provider.server import listen, raise_file_limit, serve
from fake_provider.settings import SettingsError, explain, load


class _Unusable(Exception):
    """Why nothing can be started, in one line for the user."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns 0 after a clean stop, 2 when nothing could be started."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except (_Unusable, SettingsError, TokenError) as error:
        print(f"fake_provider: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fake_provider",
        description="A fake of OpenAI and Anthropic, limited in tokens per minute, with a ledger.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--bind", metavar="HOST[:PORT]", help="the same in one; beyond loopback only with a token for /_fake/"
    )
    parser.add_argument("--port", type=int, default=9000, help="0 takes a free one (default: 9000)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings, YAML or JSON")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting (latency.chunk_ms=200)",
    )
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append every ended call as a JSON line")
    parser.add_argument("--run", type=int, default=0, help="run number that markers must carry (default: 0)")
    parser.add_argument(
        "--token-env",
        "--control-token-env",
        metavar="NAME",
        help=f"environment variable with the token for /_fake/ (default: {TOKEN_VARIABLE}, where it is set)",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with that token")
    parser.add_argument("--parent-pipe", action="store_true", help="stop when standard input ends")
    levels = ("critical", "error", "warning", "info", "debug")
    parser.add_argument("--log-level", choices=levels, default="warning", help="(default: warning)")
    return parser


def _run(options: argparse.Namespace) -> None:
    if not 0 <= options.run <= 65_535:
        raise _Unusable(f"--run {options.run}: must be from 0 to 65535")
    host, port = _address(options)
    token = read_token(os.environ, options.token_env, options.token_file)
    config = load(options.config, options.set)
    ledger_file = None if options.ledger is None else _ledger_file(options.ledger)
    try:
        provider = _provider(config, options.run, ledger_file)
        with _listen(host, port) as sock:
            _refuse_open_control(host, sock, token)
            _serve(Host(provider, ledger_file), sock, token, options)
    finally:
        if ledger_file is not None:
            ledger_file.close()


def _serve(host: Host, sock: socket.socket, token: str | None, options: argparse.Namespace) -> None:
    raise_file_limit()
    serving = serve(
        host,
        sock,
        ready=lambda: _say_ready(sock),
        log_level=options.log_level,
        control_token=token,
        parent_pipe=sys.stdin.fileno() if options.parent_pipe else None,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)


def _address(options: argparse.Namespace) -> tuple[str, int]:
    if options.bind is None:
        return options.host, options.port
    try:
        return split_bind(options.bind, options.port)
    except ValueError as error:
        raise _Unusable(f"--bind {options.bind}: {error}") from None


def _refuse_open_control(host: str, sock: socket.socket, token: str | None) -> None:
    """Calls are anybody's; who may empty the ledger and bring faults about is not."""
    if token is None and not ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback:
        raise _Unusable(
            f"{host} is reachable from other hosts, and the control of this provider would be open to them: "
            f"put a token into the environment variable {TOKEN_VARIABLE} (openssl rand -hex 16 makes one), "
            "or name its --token-file"
        )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise _Unusable(f"--port {port}: must be from 0 to 65535")
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = "is in use: choose another with --port, or let --port 0 find a free one"
            raise _Unusable(f"port {port} on {host} {what}") from None
        raise _Unusable(f"cannot listen on {host} port {port}: {error.strerror}") from None
    except UnicodeError:
        raise _Unusable(f"cannot listen on {host} port {port}: that is no host's name") from None


def _ledger_file(path: Path) -> LedgerFile:
    try:
        return LedgerFile(path)
    except OSError as error:
        because = "is a pipe that nobody reads" if error.errno == errno.ENXIO else error.strerror
        raise _Unusable(f"--ledger {path}: {because}") from None


def _provider(config: ProviderConfig, run: int, ledger_file: LedgerFile | None) -> Provider:
    on_ended = None if ledger_file is None else ledger_file.append
    now_ns = time.monotonic_ns()
    epoch_ns = time.time_ns() - now_ns
    try:
        return Provider(config, run=run, now_ns=now_ns, epoch_ns=epoch_ns, on_ended=on_ended)
    except LookupError as error:
        raise _Unusable(f"faults: {error.args[0]}") from None
    except ValidationError as error:
        raise _Unusable(f"faults: {explain(error)}") from None


def _say_ready(sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    print(json.dumps({"event": "ready", "port": port, "pid": os.getpid()}), flush=True)
    if sys.stdout.isatty():
        url = f"http://{host}:{port}"
        print(f"listening on {url}/v1/chat/completions", file=sys.stderr)
        print(f"and on {url}/v1/responses, {url}/v1/messages; control: {url}/_fake/stats", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
