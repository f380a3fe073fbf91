"""What there is, as lines to print: profiles, checks, policies, and what a profile would do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

from agentload.errors import UsageError
from agentload.model import NS, Profile, Tenant
from agentload.registry import Seam, did_you_mean


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
    }
    if what not in kinds:
        raise UsageError(f"list {what}: no such kind{did_you_mean(what, sorted(kinds))}")
    return _table(kinds[what]())


def profile_lines(name: str, seed: int | None, settings: tuple[str, ...]) -> Iterator[str]:
    """The phases, tenants and checks of a profile, and the plan it draws."""
    from agentload import plan as planning
    from agentload import profile as profiles

    path = profiles.find(name)
    profile = profiles.load(path, settings)
    drawn = planning.draw(profile, profile.seed if seed is None else seed)
    yield f"{profile.name}: {profile.about}"
    yield f"file         {path}"
    yield f"seed         {drawn.seed}"
    yield f"plan         {len(drawn.arrivals)} arrivals, {drawn.closed_users} closed-loop users"
    yield f"fingerprint  {drawn.fingerprint}"
    yield from _phase_lines(profile)
    yield "tenants"
    yield from ("  " + line for line in _table({t.name: _tenant(t) for t in profile.tenants}))
    yield from _fault_lines(profile)
    yield "checks"
    yield from ("  " + line for line in _table({c.kind: _params(c.params) for c in profile.checks}))


def marker_lines(text: str) -> Iterator[str]:
    """What a marker says. Raises UsageError when the text holds none."""
    from fake_provider import marker

    found = marker.decode(text)
    if found is None:
        raise UsageError(
            "no valid marker in this text: 13 words that begin with 'ref' (the checksum must fit)"
        )
    yield f"run {found.run}  tenant {found.tenant}  seq {found.seq}  attempt {found.attempt}"
    yield f"wanted output {found.output_tokens} tokens"


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
    return ", ".join(f"{name} {value}" for name, value in params.items())


def _profiles() -> dict[str, str]:
    from agentload import profile as profiles

    return {name: profiles.load(profiles.find(name)).about for name in profiles.names()}


def _policies() -> dict[str, str]:
    from agentload.scheduler import policies

    return {name: _first_line(policies.SEAM.get(name)) for name in policies.SEAM.names()}


def _mutants() -> dict[str, str]:
    from agentload import mutants

    classes = {name: mutants.SEAM.get(name) for name in mutants.SEAM.names()}
    return {
        name: "a twin of the reference" if one.cosmetic else f"{one.row:<4} {one.breaks}"
        for name, one in classes.items()
    }


def _faults() -> dict[str, str]:
    from agentload import faults, gateway_faults
    from fake_provider import faults as provider_side

    def about(kind: str, side: str) -> str:
        cls = gateway_faults.SEAM.get(kind) if side == "gateway" else provider_side.of_kind(kind)
        return f"{side}: {_first_line(inspect.getmodule(cls))}"

    return {kind: about(kind, side) for kind, side in faults.kinds().items()}


def _seam(noun: str) -> dict[str, str]:
    import importlib

    seam: Seam[object] = importlib.import_module(f"agentload.{noun}").SEAM
    return {name: _first_line(seam.get(name)) for name in seam.names()}


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def _table(rows: dict[str, str]) -> Iterator[str]:
    width = max((len(name) for name in rows), default=0)
    return (f"{name:<{width}}  {text}".rstrip() for name, text in rows.items())
