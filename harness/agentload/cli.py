"""The command line: parses, calls one function, prints. Imports nothing heavy until a command needs it."""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentload.errors import UsageError
from agentload.registry import PLUGINS_VARIABLE, check_plugin_folder

if TYPE_CHECKING:
    from agentload.caps import Caps

app = typer.Typer(
    name="agentload",
    help="Load-testing and chaos harness for multi-tenant LLM and agent gateways.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

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
MaxRateOption = Annotated[
    float | None, typer.Option(min=1, metavar="N", help="Requests sent in any second, retries included.")
]
MaxConnectionsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Connections open at once.")
]
MaxSecondsOption = Annotated[
    float | None, typer.Option(min=1, metavar="S", help="How long the load and its drain may last.")
]
MaxAnswerOption = Annotated[
    int | None,
    typer.Option(min=1024, max=8 * 2**20, metavar="N", help="Bytes of an answer that are heard out."),
]
InconclusiveOption = Annotated[
    str, typer.Option(metavar="pass|fail", help="What an inconclusive run means for the exit code.")
]


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
    bind: Annotated[
        str, typer.Option(metavar="HOST[:PORT]", help="Where the Locust master listens for workers.")
    ] = "127.0.0.1",
    expect_workers: Annotated[
        int,
        typer.Option(min=0, max=1024, help="Wait for so many `agentload worker` instead of starting any."),
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
        bind=bind,
        expect_workers=expect_workers,
        caps=_caps(max_rate, max_connections, max_seconds, max_answer_bytes),
        inconclusive_passes=_passes(inconclusive),
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
        inconclusive_passes=_passes(inconclusive),
        command=tuple(sys.argv[1:]),
    )
    raise typer.Exit(composition.run(options))


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
    """Play a published experiment again: is its shape the same?

    In virtual time. Exit code 0: all that the source reports came out here, too; 1: something did not.
    """
    from agentload import experiment as composition

    options = composition.Options(
        experiment=name,
        seed=seed,
        seeds=seeds,
        out=out,
        inconclusive_passes=_passes(inconclusive),
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
    reruns: Annotated[int, typer.Option(min=0, max=5, help="Repeats of an inconclusive run.")] = 1,
    max_rate: MaxRateOption = None,
    max_connections: MaxConnectionsOption = None,
    max_seconds: MaxSecondsOption = None,
    max_answer_bytes: MaxAnswerOption = None,
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Run several profiles as one gate for CI.

    One summary, one junit.xml, one exit code. All bundled profiles together take about seven minutes.
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
        caps=_caps(max_rate, max_connections, max_seconds, max_answer_bytes),
        inconclusive_passes=_passes(inconclusive),
        command=tuple(sys.argv[1:]),
    )
    options = gates.Options(profiles=gates.select(profiles), out=out, reruns=reruns, each=each)
    raise typer.Exit(gates.run(options))


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
    from agentload.judge import explain as explain_check

    typer.echo(explain_check(check))


@app.command()
def judge(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    inconclusive: InconclusiveOption = "fail",
) -> None:
    """Decide again from a run folder, and report anew."""
    from agentload import run as composition

    raise typer.Exit(composition.judge_folder(folder, inconclusive_passes=_passes(inconclusive)))


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
    _exec(
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
    _exec(
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
    burst: Annotated[int, typer.Option(min=1, max=200, help="So many requests at once.")] = 40,
) -> None:
    """Look at a target before any load.

    One request per tenant, a stream, a call that is left, a small burst; then which checks a run will decide,
    and why not the others. Exit code 0: all that can be; 1: something must be mended first; 3: some will be
    inconclusive; 4: our provider is not behind it.
    """
    from agentload import doctor as composition
    from agentload.order import Options

    options = Options(
        profile=profile,
        target=target,
        provider_url=provider,
        provider_port=provider_port,
        allow_hosts=tuple(allow_host or ()),
    )
    raise typer.Exit(composition.run(options, burst))


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
    )
    text = files.write(options, out)
    if text is not None:
        typer.echo(text, nl=False)


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


def _caps(
    rate: float | None, connections: int | None, seconds: float | None, answer_bytes: int | None
) -> Caps:
    from agentload.caps import Caps

    return Caps(rate=rate, connections=connections, seconds=seconds, answer_bytes=answer_bytes)


def _passes(inconclusive: str) -> bool:
    """`--inconclusive`. Raises UsageError for anything but pass and fail."""
    if inconclusive not in ("pass", "fail"):
        raise UsageError(f"--inconclusive {inconclusive}: must be pass or fail")
    return inconclusive == "pass"


def _exec(module: str, options: dict[str, object]) -> None:
    """Become another module of ours: a server started by hand should be one process, not two."""
    arguments: list[str] = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        for item in values:
            if item is not None:
                arguments += [name, str(item)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
