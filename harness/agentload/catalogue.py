"""What there is, as lines to print: profiles, checks, policies, and what a profile would do."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from agentload.errors import UsageError
from agentload.model import NS, Profile, Tenant
from agentload.registry import Seam, did_you_mean
from agentload.report.text import limits_line, printable

T = TypeVar("T")
_FIRST_COLUMN = re.compile(r"\s*\S.*?\s{2,}")
_LEAST_COLUMN = 20
"""A second column narrower than this is no easier to read than one that the terminal breaks."""


def lines(what: str) -> Iterator[str]:
    """One aligned line per thing of that kind. Raises UsageError for an unknown kind."""
    kinds: dict[str, Callable[[], dict[str, str]]] = {
        "profiles": _profiles,
        "checks": lambda: _seam("checks"),
        "mutants": _mutants,
        "policies": _policies,
        "behaviours": lambda: _seam("behaviours"),
        "workloads": lambda: _seam("workloads"),
        "arrivals": lambda: _seam("arrivals"),
        "faults": _faults,
        "experiments": lambda: _seam("experiments"),
        "flavours": lambda: _seam("flavours"),
    }
    if what not in kinds:
        raise UsageError(f"list {what}: no such kind{did_you_mean(what, sorted(kinds))}")
    return _table(kinds[what]())


def profile_lines(
    name: str, seed: int | None, settings: tuple[str, ...], scale: str | None = None
) -> Iterator[str]:
    """The phases, tenants and checks of a profile, and the plan it draws."""
    from agentload import plan as planning
    from agentload import profile as profiles
    from agentload.profile.scale import scaled_as

    path = profiles.find(name)
    profile = profiles.load(path, settings)
    how = _scale_lines(profile, scale)
    profile = scaled_as(profile, scale)
    drawn = planning.draw(profile, profile.seed if seed is None else seed)
    yield f"{profile.name}: {printable(profile.about)}"
    yield f"file         {path}"
    yield f"seed         {drawn.seed}"
    yield f"plan         {len(drawn.arrivals)} arrivals, {drawn.closed_users} closed-loop users"
    yield f"fingerprint  {drawn.fingerprint}"
    yield from how
    yield f"provider     {limits_line(profile.provider)}"
    yield from _slots_lines(profile)
    yield from _phase_lines(profile)
    yield "tenants"
    yield from ("  " + line for line in _table({t.name: _tenant(t) for t in profile.tenants}))
    yield from _fault_lines(profile)
    yield "checks"
    yield from ("  " + line for line in _aligned([(c.kind, _params(c.params)) for c in profile.checks]))


def marker_lines(texts: Iterable[str], run: Path | None = None) -> Iterator[str]:
    """What the markers say, one line for each text that holds one. Raises UsageError when none does.

    `run`: the folder of the run that they are from, to name tenants instead of numbering them.
    """
    from fake_provider import marker

    names = () if run is None else _tenant_names(run)
    number = 0
    for text in texts:
        if (found := marker.decode(text)) is not None:
            number += 1
            tenant = names[found.tenant] if found.tenant < len(names) else str(found.tenant)
            yield (
                f"run {found.run}  tenant {tenant}  seq {found.seq}  attempt {found.attempt}"
                f"  wanted output {found.output_tokens} tokens"
            )
    if not number:
        raise UsageError(
            "no valid marker in this text: 13 words that begin with 'ref' (the checksum must fit)"
        )


def fitted(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """The lines, those that are too wide folded under their second column, or where there is none under their
    beginning. None: no width to fit."""
    for line in lines:
        match = _FIRST_COLUMN.match(line)
        column = match.end() if match else len(line) - len(line.lstrip())
        if width is None or len(line) <= width or width - column < _LEAST_COLUMN:
            yield line
        else:
            yield from textwrap.wrap(line, width, subsequent_indent=" " * column, break_on_hyphens=False)


def holds_marker(texts: Iterable[str]) -> bool:
    """Whether one of the texts holds a whole marker."""
    from fake_provider import marker

    return any(marker.decode(text) is not None for text in texts)


def _tenant_names(run: Path) -> list[str]:
    """The tenants of a run folder, in the order of their numbers. Raises RunFolderError."""
    from agentload.rundir import read_manifest

    return [str(tenant["name"]) for tenant in read_manifest(run).profile["tenants"]]


def _scale_lines(profile: Profile, text: str | None) -> list[str]:
    from agentload.profile import scale
    from agentload.report.text import figure

    least, most = scale.least(profile), scale.most(profile)
    bounds = f"from {figure(least.factor)} to {figure(most.factor)} ({least.because})"
    factor = scale.factor_of(text)
    if factor is None:
        return [f"scale        {bounds}"]
    longer = figure(scale.lengthening(profile, factor))
    return [f"scale        {factor:g}, phases {longer} × as long; can be {bounds}"]


def _slots_lines(profile: Profile) -> Iterator[str]:
    from agentload.profile import slots_beyond_provider

    provider = "no bound" if profile.provider.slots is None else str(profile.provider.slots)
    pools = ", ".join(f"{name} {pool.slots}" for name, pool in profile.gateway.pools.items())
    yield f"slots        provider {provider}, gateway {pools}"
    if beyond := slots_beyond_provider(profile):
        yield f"warning      {beyond}"


def _phase_lines(profile: Profile) -> Iterator[str]:
    yield "phases"
    for phase in profile.phases:
        notes = "" if phase.record else "  (not recorded)"
        notes += f"  (replays {phase.replays})" if phase.replays else ""
        yield f"  {phase.name:<12} {phase.seconds:g} s{notes}"


def _fault_lines(profile: Profile) -> Iterator[str]:
    from agentload.faults import window

    if profile.faults:
        yield "faults"
    for fault in profile.faults:
        kind, start_ns, end_ns = window(profile, fault)
        whom = f"tenant {fault.tenant}" if fault.tenant else ""
        notes = ", ".join(note for note in (whom, _params(fault.params)) if note)
        when = f"{start_ns / NS:g}–{end_ns / NS:g} s"
        yield f"  {kind:<14} {when:<12} {notes}".rstrip()


def _tenant(tenant: Tenant) -> str:
    if tenant.locust is not None:
        own = tenant.locust
        during = f" during {', '.join(tenant.during)}" if tenant.during else ""
        load = f"{own.users} users of {own.user_class} in {own.file}, not planned{during}"
        return f"{tenant.service_class}, weight {tenant.weight:g}, {load}"
    if tenant.arrivals is not None:
        load = f"{tenant.arrivals.kind} {_params(tenant.arrivals.params)}"
    else:
        load = f"{tenant.users} users, closed loop"
    during = f" during {', '.join(tenant.during)}" if tenant.during else ""
    return f"{tenant.service_class}, weight {tenant.weight:g}, {load}{during}, {_clients(tenant)}"


def _clients(tenant: Tenant) -> str:
    if not tenant.clients:
        return f"client {tenant.client.kind}"
    shares = ", ".join(f"{one.share:.0%} {one.client.kind}" for one in tenant.clients)
    return f"clients {shares}"


def _params(params: dict[str, object]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in params.items())


def _value(value: object) -> str:
    """As the profile's author wrote it: `[modest, return]`."""
    return f"[{', '.join(map(str, cast(list[object], value)))}]" if isinstance(value, list) else str(value)


def _profiles() -> dict[str, str]:
    from agentload import profile as profiles

    rows: dict[str, str] = {}
    for name in profiles.names():
        try:
            rows[name] = profiles.load(profiles.find(name)).about
        except UsageError as error:
            rows[name] = _unusable(error)
    return rows


def _policies() -> dict[str, str]:
    from agentload.scheduler import policies

    return _described(policies.SEAM, _first_line)


def _mutants() -> dict[str, str]:
    from agentload import mutants

    def about(one: type[mutants.Mutant]) -> str:
        return "a twin of the reference" if one.cosmetic else f"{one.row:<4} {one.breaks}"

    return _described(mutants.SEAM, about)


def _faults() -> dict[str, str]:
    from agentload import faults, gateway_faults
    from fake_provider import faults as provider_side

    def about(kind: str, side: str) -> str:
        try:
            cls = gateway_faults.SEAM.get(kind) if side == "gateway" else provider_side.of_kind(kind)
        except (UsageError, LookupError) as error:
            return _unusable(error)
        return f"{side}: {_first_line(inspect.getmodule(cls))}"

    return {kind: about(kind, side) for kind, side in faults.kinds().items()}


def _seam(noun: str) -> dict[str, str]:
    import importlib

    seam: Seam[object] = importlib.import_module(f"agentload.{noun}").SEAM
    return _described(seam, _first_line)


def _described(seam: Seam[T], about: Callable[[type[T]], str]) -> dict[str, str]:
    """A line about each; one that cannot be used says why, and hides none of the others."""
    rows: dict[str, str] = {}
    for name in seam.names():
        try:
            rows[name] = about(seam.get(name))
        except UsageError as error:
            rows[name] = _unusable(error)
    return rows


def _unusable(error: Exception) -> str:
    return f"CANNOT BE USED: {' '.join(str(error).split())}"


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def _table(rows: dict[str, str]) -> Iterator[str]:
    return _aligned(list(rows.items()))


def _aligned(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """As `_table`, where a name may come twice: a profile may ask a check about several phases."""
    width = max((len(name) for name, _ in rows), default=0)
    return (f"{name:<{width}}  {text}".rstrip() for name, text in rows)
