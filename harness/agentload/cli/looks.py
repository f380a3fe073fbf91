"""Commands that only tell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli.options import ProfileArgument, ScaleOption, SeedOption, SetOption
from agentload.cli.root import app


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="profiles, checks, experiments, mutants, policies, behaviours, workloads, arrivals, faults "
            "or flavours"
        ),
    ] = "profiles",
) -> None:
    """List what there is: profiles, checks, mutants, faults …"""
    from agentload import catalogue, screen

    for line in catalogue.fitted(catalogue.lines(what), screen.width()):
        typer.echo(line)


@app.command()
def show(
    profile: ProfileArgument,
    seed: SeedOption = None,
    settings: SetOption = None,
    scale: ScaleOption = None,
) -> None:
    """Show a profile: phases, tenants, checks and its plan."""
    from agentload import catalogue, screen

    lines = catalogue.profile_lines(profile, seed, tuple(settings or ()), scale)
    for line in catalogue.fitted(lines, screen.width()):
        typer.echo(line)


@app.command()
def explain(
    check: Annotated[str, typer.Argument(help="A check, as `agentload list checks` prints it.")],
) -> None:
    """Say when a check passes, and the smallest run it fails."""
    from agentload import catalogue, screen
    from agentload.judge import explain as explain_check

    width = screen.width()
    for line in catalogue.fitted(explain_check(check, width).splitlines(), width):
        typer.echo(line)


@app.command()
def decode(
    text: Annotated[
        list[str], typer.Argument(help="Any text; `-` reads standard input, a message in each line.")
    ],
    run_folder: Annotated[
        Path | None,
        typer.Option("--run", metavar="FOLDER", help="The run it is from: says the tenant's name."),
    ] = None,
) -> None:
    """Read the marker in a message: whose request is this?

    Every message that agentload sends holds one. Look for it in your gateway's request log.
    """
    from agentload import catalogue

    if text != ["-"]:
        given = [" ".join(text)]
    else:
        whole = sys.stdin.read()
        lines = whole.splitlines()
        given = lines if catalogue.holds_marker(lines) else [whole]  # one marker may be wrapped over lines
    for line in catalogue.marker_lines(given, run_folder):
        typer.echo(line)
