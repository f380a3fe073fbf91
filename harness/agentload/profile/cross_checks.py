"""One part of a profile against another: names, references, lengths and sizes.

Works on the data as written, so that these problems are found even where something else is wrong, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from agentload.arrivals import ArrivalProcess
from agentload.checks import Check, PhaseRef, TenantRef, references
from agentload.model import Phase
from agentload.registry import did_you_mean
from agentload.scheduler import policies
from agentload.yaml_positions import Document, Path, shown

MAX_TENANTS = 60_000
"""The provider's marker numbers tenants with 16 bits."""
MAX_COUNT = 10_000
"""Tenants that one `count` may make."""
MAX_ARRIVALS = 2_000_000
"""A plan is held in memory, by every worker."""


class Demand(NamedTuple):
    """What a valid tenant asks of the plan."""

    path: Path
    tenants: int
    """So many of the kind."""
    during: tuple[str, ...]
    process: ArrivalProcess | None


def elements(document: Document, key: str) -> Iterator[tuple[Path, Any]]:
    """The elements of an outermost list, with their paths; none where it is no list."""
    yield from listed(document, (key,))


def listed(document: Document, path: Path) -> Iterator[tuple[Path, Any]]:
    """The elements of a list anywhere, with their paths; none of what is no list or hopeless."""
    found = document.get(path)
    if isinstance(found, list):
        for index, raw in enumerate(found):
            if document.is_hopeless:
                return
            yield (*path, index), raw


def numbered(name: str, count: int) -> list[str]:
    """`quiet-1`, `quiet-2`, …"""
    return [f"{name}-{number}" for number in range(1, count + 1)]


def names_under(document: Document, key: str) -> list[str]:
    """The names under `phases` or `tenants`, right or wrong otherwise."""
    named = [raw.get("name") for _, raw in elements(document, key) if isinstance(raw, dict)]
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))


def tenant_names(document: Document) -> list[str]:
    """Groups, and the tenants that a count makes of them."""
    raws = [raw for _, raw in elements(document, "tenants") if isinstance(raw, dict)]
    return list(dict.fromkeys(name for raw in raws for name in _expanded_names(raw)))


def _expanded_names(raw: dict[str, Any]) -> list[str]:
    name, count = raw.get("name"), raw.get("count")
    if not isinstance(name, str):
        return []
    return [name, *(numbered(name, count) if isinstance(count, int) and 1 < count <= MAX_COUNT else ())]


def cross_check_phases(document: Document) -> None:
    """No phase twice, replays of earlier phases of the same length, and something recorded."""
    seconds: dict[str, Any] = {}
    recorded = False
    for path, raw in elements(document, "phases"):
        if not isinstance(raw, dict):
            continue
        name, replays = raw.get("name"), raw.get("replays")
        recorded = recorded or raw.get("record") is not False
        if isinstance(replays, str):
            _check_replay(document, path, raw, seconds)
        if isinstance(name, str):
            if name in seconds:
                document.complain((*path, "name"), f"there is a phase '{name}' already")
            seconds.setdefault(name, raw.get("seconds"))
    if seconds and not recorded:
        document.complain(("phases",), "no phase is recorded: leave out `record: false` for at least one")


def _check_replay(document: Document, path: Path, raw: dict[str, Any], earlier: dict[str, Any]) -> None:
    replays = raw["replays"]
    if replays not in earlier:
        hint = did_you_mean(replays, list(earlier))
        document.complain((*path, "replays"), f"no earlier phase '{replays}'{hint}")
    elif raw.get("seconds") != earlier[replays]:
        document.complain(
            (*path, "seconds"),
            f"must be {earlier[replays]}, as long as the phase '{replays}' that it replays, "
            f"got {shown(raw.get('seconds'))}",
        )


def cross_check_tenants(document: Document) -> None:
    """No name twice; classes and phases that exist."""
    known_phases, classes = names_under(document, "phases"), _class_names(document)
    taken: dict[str, str] = {}
    for path, raw in elements(document, "tenants"):
        if not isinstance(raw, dict):
            continue
        _check_names(document, path, raw, taken)
        service_class = raw.get("class", "standard")
        if classes and isinstance(service_class, str) and service_class not in classes:
            hint = did_you_mean(service_class, classes)
            document.complain((*path, "class"), f"the gateway has no class '{service_class}'{hint}")
        during = raw.get("during")
        for index, phase in enumerate(during if isinstance(during, list) else ()):
            if isinstance(phase, str) and known_phases and phase not in known_phases:
                hint = did_you_mean(phase, known_phases)
                document.complain((*path, "during", index), f"no phase '{phase}'{hint}")


def cross_check_models(document: Document) -> None:
    """Models that the provider serves, where it does not serve any."""
    if document.get(("provider", "any_model")) is not False:
        return
    served = document.get(("provider", "models"))
    names = [name for name in served if isinstance(name, str)] if isinstance(served, list) else ["fake-model"]
    for path, raw in elements(document, "tenants"):
        model = raw.get("model") if isinstance(raw, dict) else None
        if isinstance(model, str) and model not in names:
            hint = did_you_mean(model, names)
            document.complain((*path, "model"), f"the provider serves no model {shown(model)}{hint}")


def _check_names(document: Document, path: Path, raw: dict[str, Any], taken: dict[str, str]) -> None:
    """No name twice, whether of a tenant or of a group."""
    for name in _expanded_names(raw):
        if name in taken:
            document.complain((*path, "name"), f"the name '{name}' is taken by {taken[name]}")
            return
        taken[name] = f"tenants[{path[1]}]"


def cross_check_policy(document: Document) -> None:
    """A policy that exists."""
    policy = document.get(("gateway", "policy"))
    if isinstance(policy, str) and policy not in policies.SEAM.names():
        hint = did_you_mean(policy, policies.SEAM.names())
        document.complain(("gateway", "policy"), f"no policy named '{policy}'{hint}")


def _class_names(document: Document) -> list[str]:
    pools = document.get(("gateway", "pools"))
    if pools is None:
        return ["standard"]
    names: list[str] = []
    for pool in cast("dict[str, Any]", pools).values() if isinstance(pools, dict) else ():
        classes = pool.get("classes", ["standard"]) if isinstance(pool, dict) else ()
        names += classes if isinstance(classes, dict | list) else ()
    return names


def check_references(document: Document, path: Path, check: type[Check], params: dict[str, Any]) -> None:
    """Every tenant and phase that a check names must exist, also those that it names by default."""
    phases = names_under(document, "phases")
    known = {TenantRef: ("tenant", tenant_names(document)), PhaseRef: ("phase", phases)}
    for parameter, kind in references(check):
        noun, names = known[kind]
        given = parameter in params
        default = check.model_fields[parameter].get_default(call_default_factory=True)
        for word in _words(params.get(parameter, default)):
            if not names or word in names:
                continue
            if given:
                document.complain((*path, parameter), f"no {noun} '{word}'{did_you_mean(word, names)}")
            else:
                document.complain(
                    path, f"needs a {noun} '{word}', or another one as its parameter {parameter}"
                )


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple | set | frozenset | dict):
        return [word for word in cast("Sequence[object]", value) if isinstance(word, str)]
    return []


def check_sizes(document: Document, demands: Iterable[Demand], phases: Sequence[Phase]) -> None:
    """Refuse what would not fit in memory or in the marker."""
    total, tenants = 0.0, 0
    for demand in demands:
        tenants += demand.tenants
        active = [p.seconds for p in phases if not demand.during or p.name in demand.during]
        if demand.process is not None:
            total += demand.tenants * sum(demand.process.mean_count(seconds) or 0.0 for seconds in active)
        if total > MAX_ARRIVALS:
            message = (
                f"brings the plan to {total:.3g} requests: lower the rate or shorten the phases to stay below"
            )
            document.complain((*demand.path, "arrivals"), f"{message} {MAX_ARRIVALS}")
            return
    if tenants > MAX_TENANTS:
        document.complain(("tenants",), f"{tenants} tenants in all, more than {MAX_TENANTS}")
