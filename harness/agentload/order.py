"""What is to be run: the user's options, read and checked whole before anything is started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agentload import external_provider, plan, profile, targets
from agentload.caps import ELSEWHERE, HERE, Caps, refuse_beyond
from agentload.declared_doubts import doubts
from agentload.drivers import tls, users_files
from agentload.drivers.foreign_process import ForeignProcess
from agentload.drivers.keyring import with_keys
from agentload.drivers.processes import check_file_limit, check_port_free
from agentload.errors import AgentloadError, ProfileError, UsageError
from agentload.faults import ends_a_gateway, is_gateways
from agentload.model import Plan, Profile
from agentload.profile import scale
from agentload.registry import did_you_mean
from agentload.targets import Target, is_loopback
from agentload.targets._declares import declared_tenants
from agentload.targets._urls import split_url

LEAST_IN_FLIGHT = 1_000
"""A machine that may not open so many connections at once can load nothing worth judging."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as typed."""

    profile: str
    target: str | None = None
    policy: str | None = None
    mutant: str | None = None
    """A safeguard that is switched off in the bundled gateway."""
    seed: int | None = None
    workers: int = 1
    out: Path | None = None
    settings: tuple[str, ...] = ()
    quick: bool = False
    scale: str | None = None
    """`auto` (to be settled by a calibration before `prepare` can scale), a factor, or nothing: 1."""
    provider_url: str | None = None
    provider_port: int = 0
    allow_hosts: tuple[str, ...] = ()
    allow_cost: bool = False
    """What is sent may go on to a provider that takes money for it."""
    beside: tuple[str, ...] = ()
    """Other profiles that the same target is run with: of a gate."""
    bind: str = "127.0.0.1"
    expect_workers: int = 0
    caps: Caps = Caps()
    """What the user has said of them; the rest is as it is for such a target."""
    drives: bool = True
    """False: a look at the target, with hardly any load."""
    locust_web: int = 0
    """Port of Locust's own web UI, on loopback; 0: none."""
    inconclusive_passes: bool = False
    command: tuple[str, ...] = ()


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be wrong with the user's input has been found by now; nothing has been started."""

    profile: Profile
    plan: Plan
    target: Target | None
    """None: the bundled gateway, whose address is known only when it listens."""
    warnings: tuple[str, ...] = ()
    """Lines for the user that stop nothing."""
    caps: Caps = HERE
    """What the target is never asked to bear more of."""
    scale: dict[str, Any] | None = None
    """By what the profile was scaled, and why; None: it was not."""


def prepare(options: Options) -> Prepared:
    """Read and check all input. Raises AgentloadError; starts nothing."""
    settings = list(options.settings)
    if options.mutant is not None:
        _check_mutant(options)
    if options.policy is not None:
        settings.append(f"gateway.policy={options.policy}")
    chosen = profile.load(profile.find(options.profile), settings)
    factor, how = scale.factor_of(options.scale), None
    if factor is not None and factor != 1:
        chosen, how = scale.scaled(chosen, factor), scale.facts(chosen, factor)
    if options.quick:
        chosen = profile.quick(chosen)
    target = None
    warnings: list[str] = []
    if options.target is not None:
        target = targets.load(options.target, os.environ, allow_hosts=options.allow_hosts)
        _check_provider(options, target)
        tls.check(target.trust, options.target)
        names = [tenant.name for tenant in chosen.tenants]
        target = with_keys(target, names, os.environ, warnings.append)
        target.check_tenants((tenant.name, tenant.service_class) for tenant in chosen.tenants)
        _check_faults(chosen, target)
        _check_process(target)
        _check_declared(target, chosen, options.beside)
        warnings += doubts(chosen, target)
        if target.provider.external:
            external_provider.refuse_faults(chosen)
    else:
        _check_provider(options, None)
    seed = chosen.seed if options.seed is None else options.seed
    bind_address(options.bind)
    check_file_limit(LEAST_IN_FLIGHT)
    _check_ports(options, target)
    users_files.check(chosen)
    drawn = plan.draw(chosen, seed)
    if target is not None and target.provider.external:
        look = external_provider.LOOK_LINE
        cost = external_provider.spend_line(chosen, drawn) if options.drives else look
        if not options.allow_cost:
            external_provider.refuse_unmeant(target.name, cost)
        warnings.append(cost)
    caps = (HERE if target is None or _stays_here(target) else ELSEWHERE).but_for(options.caps)
    if options.drives and options.scale != scale.AUTO:
        refuse_beyond(caps, chosen, drawn)
    return Prepared(profile=chosen, plan=drawn, target=target, warnings=tuple(warnings), caps=caps, scale=how)


def _stays_here(target: Target) -> bool:
    """Whether what is sent reaches this machine only."""
    return is_loopback(target.host) and not target.provider.external


def bind_address(bind: str) -> tuple[str, int]:
    """`--bind HOST[:PORT]`; port 0, any free one, when it does not say. Raises UsageError."""
    host, colon, port = bind.rpartition(":")
    if not colon:
        host, port = bind, "0"
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise UsageError(f"--bind {bind}: must be HOST or HOST:PORT, e.g. 10.0.0.5:5557")
    return host, int(port)


def _check_provider(options: Options, target: Target | None) -> None:
    """A provider that runs already is given by its root, where its control is, and listens where it does."""
    if target is not None and target.provider.external:
        ours = (options.provider_url and "--provider") or (options.provider_port and "--provider-port")
        external_provider.refuse_ours(target.name, ours or None)
        return
    written = target.provider.running if target is not None else None
    url = options.provider_url or written
    if url is None:
        return
    if options.provider_port:
        raise UsageError(
            f"--provider-port {options.provider_port}: is for a provider that is started here, but one runs "
            "already (--provider, or provider.running of the target file): leave out one of the two"
        )
    where = f"provider.running {url}" if options.provider_url is None else f"--provider {url}"
    try:
        address = split_url(url)
    except ValueError as error:
        raise UsageError(f"{where.rpartition(' ')[0]}: {error}") from None
    if address.path:
        root = url.rstrip("/").removesuffix(address.path)
        raise UsageError(f"{where}: must be the provider's root: {root}, without {address.path}")
    if not is_loopback(address.host) and address.host not in options.allow_hosts:
        raise UsageError(
            f"{where}: {address.host} is not this machine; "
            f"load it only if it is yours, with --allow-host {address.host}"
        )


def _check_ports(options: Options, target: Target | None) -> None:
    """Where our provider is to be started, and Locust's web UI, nobody may listen yet."""
    mend = "if agentload's provider runs there, say --provider http://127.0.0.1:{port} instead"
    if options.provider_port:
        check_port_free(options.provider_port, "--provider-port", mend)
    elif target is not None and not options.provider_url:
        check_port_free(target.provider.port, f"{target.name}: provider.listens", mend)
    check_port_free(options.locust_web, "--locust-web")


_PROCESS = "process: {pid_file: …}"
_PROCESS_TO_RESTART = "process: {pid_file: …, restart: …}: it is killed, and started again by that command"


def _check_faults(chosen: Profile, target: Target) -> None:
    """Somebody's gateway is ours to kill only where its owner says so."""
    restarts = any(ends_a_gateway(fault.kind) for fault in chosen.faults)
    for place, fault in enumerate(chosen.faults):
        where = f"{chosen.name}: faults[{place}]: {fault.kind}"
        if is_gateways(fault.kind) and target.process is None:
            raise UsageError(
                f"{where} happens to a process: say which in the target file "
                f"({_PROCESS_TO_RESTART if restarts else _PROCESS}), or leave out --target, or the fault"
            )
        if target.process is not None and target.process.restart is None and ends_a_gateway(fault.kind):
            raise UsageError(
                f"{where} needs process.restart in the target file: the command that starts it again"
            )


def _check_process(target: Target) -> None:
    if target.process is not None:
        ForeignProcess(target.process, f"{target.name}: process").find()


def _check_declared(target: Target, chosen: Profile, beside: Sequence[str]) -> None:
    """Who is declared to have been promised something must exist, in this profile or in another one."""
    own = _names_in(chosen)
    unknown = [name for name in declared_tenants(target.declares) if name not in own]
    elsewhere = set(_names_elsewhere(beside)) if unknown else set[str]()
    lines = [
        f"{target.declared_at.get(name, target.name)}: declares.tenants.{name}: no such tenant"
        + did_you_mean(name, own)
        for name in unknown
        if name not in elsewhere
    ]
    if lines:
        raise ProfileError(*lines)


def _names_elsewhere(beside: Sequence[str]) -> Iterator[str]:
    """One target file serves many profiles."""
    for name in (*beside, *profile.names()):
        with suppress(AgentloadError):
            yield from _names_in(profile.load(profile.find(name)))


def _names_in(of: Profile) -> list[str]:
    """Groups, then single tenants."""
    return list(dict.fromkeys([*(one.group for one in of.tenants), *(one.name for one in of.tenants)]))


def _check_mutant(options: Options) -> None:
    from agentload.mutants import parts_of

    if options.target is not None:
        raise UsageError("--mutant: switches off a safeguard of the bundled gateway; it takes no --target")
    parts_of(str(options.mutant))
