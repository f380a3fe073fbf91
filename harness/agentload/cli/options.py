"""Options that several commands have, and what becomes of them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentload.errors import UsageError

if TYPE_CHECKING:
    from agentload.caps import Caps

ProfileArgument = Annotated[
    str, typer.Argument(help="A bundled profile (see `agentload list`) or a YAML file.")
]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the plan; the profile's own when omitted.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one value of the profile, e.g. provider.slots=8."
    ),
]
ProviderSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the provider, e.g. slots=8."),
]
MutantOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Switch off one safeguard of the bundled gateway (`agentload list mutants`)."
    ),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Shorter phases, as far as the sample counts allow.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        metavar="auto|FACTOR",
        help="All rates, users, slots and limits times FACTOR; auto: as much as the target carries.",
    ),
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")]
TargetOption = Annotated[
    str | None, typer.Option(help="URL or YAML file of your gateway; the bundled one when omitted.")
]
PolicyOption = Annotated[str | None, typer.Option(help="Policy of the bundled gateway: sfq, fifo …")]
WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="Locust worker processes.")]
ProviderOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A fake provider that runs already, its token in AGENTLOAD_PROVIDER_TOKEN; else one is started.",
    ),
]
ProviderPortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Fixed port for our provider, for a target's configuration.")
]
AllowHostOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A host beyond loopback that may be loaded.")
]
AllowCostOption = Annotated[
    bool,
    typer.Option(
        "--allow-cost", help="Go on though a provider that is somebody else's may take money for it."
    ),
]
# The defaults are those of `caps.ELSEWHERE`, which a command imports only once it needs it; a test compares.
MaxRateOption = Annotated[
    float | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Requests sent in any second, retries included; else 1,000 beyond this machine, no cap on it.",
    ),
]
MaxConnectionsOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Connections open at once; else 2,000 beyond this machine, no cap on it."
    ),
]
MaxSecondsOption = Annotated[
    float | None,
    typer.Option(
        min=1,
        metavar="S",
        help="How long the load and its drain may last; else 900 s beyond this machine, no cap on it.",
    ),
]
MaxAnswerOption = Annotated[
    int | None,
    typer.Option(
        min=1024,
        max=8 * 2**20,
        metavar="N",
        help="Bytes of an answer that are heard out; else 8 MiB (8388608), and never more.",
    ),
]
InconclusiveOption = Annotated[
    str, typer.Option(metavar="pass|fail", help="What an inconclusive run means for the exit code.")
]


def caps(
    rate: float | None, connections: int | None, seconds: float | None, answer_bytes: int | None
) -> Caps:
    from agentload.caps import Caps

    return Caps(rate=rate, connections=connections, seconds=seconds, answer_bytes=answer_bytes)


def passes(inconclusive: str) -> bool:
    """`--inconclusive`. Raises UsageError for anything but pass and fail."""
    if inconclusive not in ("pass", "fail"):
        raise UsageError(f"--inconclusive {inconclusive}: must be pass or fail")
    return inconclusive == "pass"


def become(module: str, options: dict[str, object]) -> None:
    """Become another module of ours: a server started by hand should be one process, not two."""
    arguments: list[str] = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        for item in values:
            if item is not None:
                arguments += [name, str(item)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
