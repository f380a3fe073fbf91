"""Commands that play many runs in virtual time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli.options import (
    InconclusiveOption,
    ProfileArgument,
    QuickOption,
    SeedOption,
    SetOption,
    passes,
)
from agentload.cli.root import app


@app.command()
def selftest(
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter phases, three seeds and no half strengths: two minutes.")
    ] = False,
    mutants: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these mutants, and no cosmetic twins.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1_000, help="Seeds for each mutant; 20 (quick: 3) when omitted.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; reports/selftest-<time> when omitted.")
    ] = None,
    golden: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write which checks kill which mutant to FILE, too.")
    ] = None,
) -> None:
    """Break the gateway in many ways: do the checks notice?

    Who judges the judge: every mutant must be killed by the check it names, and nothing may fail for the
    reference or a twin.
    """
    from agentload import selftest as composition

    options = composition.Options(
        quick=quick,
        mutants=tuple(name.strip() for name in mutants.split(",")) if mutants is not None else (),
        seeds=seeds,
        out=out,
        golden=golden,
        command=tuple(sys.argv[1:]),
    )
    raise typer.Exit(composition.run(options))


@app.command("compare-policies")
def compare_policies(
    profile: ProfileArgument,
    policies: Annotated[
        str | None, typer.Option(metavar="A,B", help="Which policies, in order; all when omitted.")
    ] = None,
    seed: SeedOption = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1_000, help="So many consecutive seeds; the table shows medians.")
    ] = 1,
    settings: SetOption = None,
    quick: QuickOption = False,
    out: Annotated[Path | None, typer.Option(help="Folder for policies.json, every number.")] = None,
) -> None:
    """Simulate a profile under every policy, as one table.

    Goodput, latency, fairness and queue age side by side; nothing is judged. Exit code 0.
    """
    from agentload import compare_policies as composition

    options = composition.Options(
        profile=profile,
        policies=composition.names_in(policies),
        seed=seed,
        seeds=seeds,
        settings=tuple(settings or ()),
        quick=quick,
        out=out,
    )
    raise typer.Exit(composition.run(options))


@app.command()
def experiment(
    name: Annotated[str, typer.Argument(help="An experiment, as `agentload list experiments` prints it.")],
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=1_000, help="Consecutive seeds; as many as it needs when omitted."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; reports/<name>-<time> when omitted.")
    ] = None,
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Play a published experiment again: the same shape?

    In virtual time. Exit code 0: all that the source reports came out here, too; 1: something did not.
    """
    from agentload import experiment as composition

    options = composition.Options(
        experiment=name,
        seed=seed,
        seeds=seeds,
        out=out,
        inconclusive_passes=passes(inconclusive),
        command=tuple(sys.argv[1:]),
    )
    raise typer.Exit(composition.run(options))
