"""Commands that drive a profile, and what follows from a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli.options import (
    AllowCostOption,
    AllowHostOption,
    InconclusiveOption,
    MaxAnswerOption,
    MaxConnectionsOption,
    MaxRateOption,
    MaxSecondsOption,
    MutantOption,
    PolicyOption,
    ProfileArgument,
    ProviderOption,
    ProviderPortOption,
    QuickOption,
    ScaleOption,
    SeedOption,
    SetOption,
    TargetOption,
    WorkersOption,
    caps,
    passes,
)
from agentload.cli.root import app


@app.command()
def run(
    profile: ProfileArgument,
    target: TargetOption = None,
    policy: PolicyOption = None,
    mutant: MutantOption = None,
    seed: SeedOption = None,
    workers: WorkersOption = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for this run; reports/<profile>-<time> when omitted.")
    ] = None,
    settings: SetOption = None,
    quick: QuickOption = False,
    scale: ScaleOption = None,
    provider: ProviderOption = None,
    provider_port: ProviderPortOption = 0,
    allow_host: AllowHostOption = None,
    allow_cost: AllowCostOption = False,
    bind: Annotated[
        str, typer.Option(metavar="HOST[:PORT]", help="Where the Locust master listens for workers.")
    ] = "127.0.0.1",
    expect_workers: Annotated[
        int,
        typer.Option(min=0, max=1024, help="Wait for so many `agentload worker` instead of starting any."),
    ] = 0,
    locust_web: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", help="Locust's own web UI, on 127.0.0.1, meanwhile."),
    ] = 0,
    max_rate: MaxRateOption = None,
    max_connections: MaxConnectionsOption = None,
    max_seconds: MaxSecondsOption = None,
    max_answer_bytes: MaxAnswerOption = None,
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Drive a profile against a gateway, judge it, and report."""
    from agentload import run as composition

    options = composition.Options(
        profile=profile,
        target=target,
        policy=policy,
        mutant=mutant,
        seed=seed,
        workers=workers,
        out=out,
        settings=tuple(settings or ()),
        quick=quick,
        scale=scale,
        provider_url=provider,
        provider_port=provider_port,
        allow_hosts=tuple(allow_host or ()),
        allow_cost=allow_cost,
        bind=bind,
        expect_workers=expect_workers,
        locust_web=locust_web,
        caps=caps(max_rate, max_connections, max_seconds, max_answer_bytes),
        inconclusive_passes=passes(inconclusive),
        command=tuple(sys.argv[1:]),
    )
    raise typer.Exit(composition.run(options))


@app.command()
def simulate(
    profile: ProfileArgument,
    seed: SeedOption = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Judge so many consecutive seeds, without reports of each.")
    ] = 1,
    policy: PolicyOption = None,
    mutant: MutantOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for this run; reports/<profile>-<time> when omitted.")
    ] = None,
    settings: SetOption = None,
    quick: QuickOption = False,
    scale: ScaleOption = None,
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Play a profile in virtual time, in a second or two.

    Plan, gateway, provider, checks and reports are the same as of a live run.
    """
    from agentload import simulate as composition

    options = composition.Options(
        profile=profile,
        policy=policy,
        mutant=mutant,
        seed=seed,
        seeds=seeds,
        out=out,
        settings=tuple(settings or ()),
        quick=quick,
        scale=scale,
        inconclusive_passes=passes(inconclusive),
        command=tuple(sys.argv[1:]),
    )
    raise typer.Exit(composition.run(options))


@app.command()
def gate(
    profiles: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Which profiles, in order; all when omitted."),
    ] = None,
    target: TargetOption = None,
    policy: PolicyOption = None,
    quick: QuickOption = False,
    scale: ScaleOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for all; else reports/gate-<time>.")] = None,
    seed: SeedOption = None,
    workers: WorkersOption = 1,
    provider: ProviderOption = None,
    provider_port: ProviderPortOption = 0,
    allow_host: AllowHostOption = None,
    allow_cost: AllowCostOption = False,
    reruns: Annotated[int, typer.Option(min=0, max=5, help="Repeats of an inconclusive run.")] = 1,
    max_rate: MaxRateOption = None,
    max_connections: MaxConnectionsOption = None,
    max_seconds: MaxSecondsOption = None,
    max_answer_bytes: MaxAnswerOption = None,
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Run several profiles as one gate for CI.

    One summary, one junit.xml, one exit code. All bundled profiles together take a quarter of an hour.
    """
    from agentload import gate as gates
    from agentload import run as composition

    each = composition.Options(
        profile="",
        target=target,
        policy=policy,
        quick=quick,
        scale=scale,
        seed=seed,
        workers=workers,
        provider_url=provider,
        provider_port=provider_port,
        allow_hosts=tuple(allow_host or ()),
        allow_cost=allow_cost,
        caps=caps(max_rate, max_connections, max_seconds, max_answer_bytes),
        inconclusive_passes=passes(inconclusive),
        command=tuple(sys.argv[1:]),
    )
    options = gates.Options(profiles=gates.select(profiles), out=out, reruns=reruns, each=each)
    raise typer.Exit(gates.run(options))


@app.command()
def judge(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Decide again from a run folder, and report anew."""
    from agentload import run as composition

    raise typer.Exit(composition.judge_folder(folder, inconclusive_passes=passes(inconclusive)))


@app.command()
def agree(
    folder: Annotated[Path, typer.Argument(help="Folder of a live run of the bundled gateway.")],
) -> None:
    """Compare a live run with its simulation, by the numbers.

    Exit code 0: they agree; 1: they differ; 3: they differ, and the live run's machine was too busy to say
    whose fault it is; 2: not the folder of a live run of the bundled gateway.
    """
    from agentload.agree import run as compare

    raise typer.Exit(compare(folder))
