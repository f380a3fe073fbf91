"""The command itself: what it says of itself, and what holds for every command below it."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from agentload.registry import PLUGINS_VARIABLE, check_plugin_folder

app = typer.Typer(
    name="agentload",
    help="Load-testing and chaos harness for multi-tenant LLM and agent gateways.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        from agentload import __version__

        typer.echo(f"agentload {__version__}")
        raise typer.Exit


@app.callback()
def common(
    plugins: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Folder with more checks/, profiles/, behaviours/ … (one file each)."
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Load-testing and chaos harness for multi-tenant LLM and agent gateways."""
    for folder in plugins or []:
        check_plugin_folder(folder)
    if plugins:
        given = [str(folder.resolve()) for folder in plugins]
        inherited = os.environ.get(PLUGINS_VARIABLE, "")
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*given, *([inherited] if inherited else [])])


def plugins_first(arguments: list[str]) -> list[str]:
    """The command line with `--plugins DIR`, which belongs before the command, accepted anywhere."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved: list[str] = []
    rest: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        if word == "--plugins":
            moved += [word, *islice(words, 1)]
        else:
            (moved if word.startswith("--plugins=") else rest).append(word)
    return [*moved, *rest, *arguments[end:]]
