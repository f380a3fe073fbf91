"""Commands about a gateway of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli.options import (
    AllowCostOption,
    AllowHostOption,
    ProfileArgument,
    ProviderOption,
    ProviderPortOption,
    QuickOption,
    SeedOption,
    SetOption,
    TargetOption,
)
from agentload.cli.root import app


@app.command()
def init(
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="nginx, haproxy, envoy, litellm or plain.")
    ] = "plain",
    out: Annotated[Path, typer.Option(help="Folder for the files; created when missing.")] = Path(),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the gateway listens.")] = 8080,
    provider_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Where the gateway calls our provider.")
    ] = 9000,
) -> None:
    """Write a target file, a workflow, a gateway's config.

    Nothing that exists is overwritten.
    """
    from agentload import scaffold

    for line in scaffold.init(preset, out, port, provider_port):
        typer.echo(line)


@app.command()
def doctor(
    target: Annotated[str, typer.Option(help="URL or YAML file of your gateway.")],
    profile: Annotated[
        str, typer.Option(help="Whose tenants to ask for, and our provider's limits.")
    ] = "noisy-neighbor",
    provider: ProviderOption = None,
    provider_port: ProviderPortOption = 0,
    allow_host: AllowHostOption = None,
    allow_cost: AllowCostOption = False,
    burst: Annotated[int, typer.Option(min=1, max=200, help="So many requests at once.")] = 40,
    every: Annotated[bool, typer.Option("--all", help="Show the checks of other profiles, too.")] = False,
) -> None:
    """Look at a target before any load.

    One request per tenant, a stream, a call that is left, a small burst; then which of the profile's checks a
    run will decide, and why not the others. Exit code 0: all that it must; 1: something must be mended first;
    3: some will be inconclusive; 4: our provider is not behind it.
    """
    from agentload import doctor as composition
    from agentload.order import Options

    options = Options(
        profile=profile,
        target=target,
        provider_url=provider,
        provider_port=provider_port,
        allow_hosts=tuple(allow_host or ()),
        allow_cost=allow_cost,
    )
    raise typer.Exit(composition.run(options, burst, every=every))


@app.command()
def locustfile(
    profile: ProfileArgument,
    target: TargetOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; standard output when omitted.")
    ] = None,
    seed: SeedOption = None,
    settings: SetOption = None,
    quick: QuickOption = False,
    provider: ProviderOption = None,
    provider_port: ProviderPortOption = 0,
    allow_host: AllowHostOption = None,
    allow_cost: AllowCostOption = False,
) -> None:
    """Write a file for plain `locust -f`, with its web UI.

    It plays the profile's plan, each request at its time, and leaves a folder for `agentload judge`.
    """
    from agentload import locustfile as files
    from agentload.order import Options

    options = Options(
        profile=profile,
        target=target,
        seed=seed,
        settings=tuple(settings or ()),
        quick=quick,
        provider_url=provider,
        provider_port=provider_port,
        allow_hosts=tuple(allow_host or ()),
        allow_cost=allow_cost,
    )
    text = files.write(options, out)
    if text is not None:
        typer.echo(text, nl=False)
