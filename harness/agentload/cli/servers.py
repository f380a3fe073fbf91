"""Commands that are a process of their own."""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentload.cli.options import PortOption, ProviderSetOption, become
from agentload.cli.root import app
from agentload.errors import UsageError


def _print_alerts(value: bool) -> None:
    if value:
        typer.echo((files("agentload.gateway") / "alerts.yaml").read_text(encoding="utf-8"), nl=False)
        raise typer.Exit


@app.command()
def serve(
    upstream: Annotated[str, typer.Option(help="Base URL of the provider, e.g. http://127.0.0.1:9000.")],
    config: Annotated[
        Path | None, typer.Option(help="YAML of the gateway: pools, classes, tenants, limits.")
    ] = None,
    port: PortOption = 8080,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    policy: Annotated[str | None, typer.Option(help="Overrides the policy of the configuration.")] = None,
    upstream_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the provider's API key.")
    ] = None,
    jobs_db: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Keep durable jobs in this SQLite file.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="info: a line for each refused, failed or slow request."),
    ] = "warning",
    log_format: Annotated[Literal["text", "json"], typer.Option(help="How a line is written.")] = "text",
    print_alerts: Annotated[  # noqa: ARG001 - the callback has done it
        bool,
        typer.Option(
            "--print-alerts", is_eager=True, callback=_print_alerts, help="Print Prometheus alert rules."
        ),
    ] = False,
) -> None:
    """Run the reference gateway by itself."""
    become(
        "agentload.gateway",
        {
            "--config": config,
            "--upstream": upstream,
            "--port": port,
            "--host": host,
            "--policy": policy,
            "--upstream-key-env": upstream_key_env,
            "--jobs-db": jobs_db,
            "--log-level": log_level,
            "--log-format": log_format,
        },
    )


@app.command()
def provider(
    port: PortOption = 9000,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    bind: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="The same in one; beyond loopback with a token.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Token for its control. `ps` shows it: better in AGENTLOAD_PROVIDER_TOKEN."),
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable that holds the token.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with the token.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML or JSON of the provider.")] = None,
    settings: ProviderSetOption = None,
    ledger: Annotated[Path | None, typer.Option(help="Append every ended call to this file.")] = None,
) -> None:
    """Run the fake TPM-limited provider by itself.

    On another host, with --bind and a token, `agentload run … --provider URL` drives it from here.
    """
    if token is not None:
        if token_env is not None or token_file is not None:
            raise UsageError("--token: give it, or --token-env, or --token-file, but one of them only")
        # From here on only the environment knows it: the process that serves shows none in its command line.
        os.environ["AGENTLOAD_PROVIDER_TOKEN"] = token
    become(
        "fake_provider",
        {
            "--port": port,
            "--host": host,
            "--bind": bind,
            "--token-env": token_env,
            "--token-file": token_file,
            "--config": config,
            "--ledger": ledger,
            "--set": settings or [],
        },
    )


@app.command()
def worker(
    master: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where `agentload run --bind` listens.")],
) -> None:
    """Generate load for a run on another host.

    That is where `agentload run … --expect-workers N --bind HOST:PORT` waits; it prints the command to paste.
    """
    host, _, port = master.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"worker {master}: must be HOST:PORT, e.g. 10.0.0.5:5557")
    os.execv(sys.executable, [sys.executable, "-P", "-m", "agentload.drivers.locust_worker", host, port])
