"""The `faults` of a profile, checked as a whole: kinds, times, whom they hit, parameters.

Parameters stand beside the kind, as everywhere in a profile, or under `params`, as the provider's own control
takes them.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, Field

from agentload import faults, gateway_faults
from agentload.errors import UsageError
from agentload.model import NS, Fault, Noun, Profile
from agentload.profile.cross_checks import elements, names_under, tenant_names
from agentload.registry import did_you_mean
from agentload.validation import validate
from agentload.yaml_positions import Document, Path, shown
from fake_provider import faults as provider_side

RESTARTS = "gateway-kill"
"""The fault whose `seconds` are called `restart_after_s`."""
_EXAMPLE = "{kind: outage, at_s: 10, seconds: 5}"
_PROVIDERS_OWN = ("start_ns", "end_ns", "tenant")
"""Fields of the provider's faults that are made from the keys below."""


class _When(Noun):
    """The keys that every fault has."""

    phase: str | None = None
    at_s: float | None = Field(default=None, ge=0, le=1e6)
    seconds: float | None = Field(default=None, gt=0, le=1e6)
    restart_after_s: float | None = Field(default=None, gt=0, le=1e6)
    tenant: str | None = None

    @property
    def lasts_s(self) -> float | None:
        """However it was written."""
        return self.seconds if self.restart_after_s is None else self.restart_after_s


def read_faults(document: Document) -> list[Fault]:
    """Every valid fault; problems are noted in the document."""
    made = (_fault(document, path, raw) for path, raw in elements(document, "faults"))
    return [fault for fault in made if fault is not None]


def check_windows(document: Document, profile: Profile) -> None:
    """No fault outside the run, and nothing done to a gateway that something is being done to."""
    run_s = profile.duration_ns / NS
    busy: list[tuple[faults.FaultWindow, int]] = []
    for place, fault in enumerate(profile.faults):
        when, path = faults.window(profile, fault), ("faults", place)
        if when.start_ns >= profile.duration_ns:
            document.complain((*path, "at_s"), f"is after the run, which ends at {run_s:g} s")
        elif when.end_ns > profile.duration_ns:
            ends_s = when.end_ns / NS
            document.complain(path, f"ends at {ends_s:g} s, after the run, which ends at {run_s:g} s")
        if faults.is_gateways(fault.kind):
            for other, earlier in busy:
                if when.start_ns < other.end_ns and other.start_ns < when.end_ns:
                    document.complain(path, f"overlaps faults[{earlier}]: there is one gateway")
            busy.append((when, place))


def _fault(document: Document, path: Path, raw: Any) -> Fault | None:
    if not isinstance(raw, dict):
        document.complain(path, f"must be a mapping such as {_EXAMPLE}, got {shown(raw)}")
        return None
    written = cast("dict[str, Any]", raw)
    kind = _kind(document, path, written)
    if kind is None:
        return None
    named = {key: value for key, value in written.items() if key in _When.model_fields}
    when = validate(document, path, _When, named)
    params = _params(document, path, kind, written)
    if when is None:
        return None
    _check_when(document, path, kind, when)
    _check_tenant(document, path, kind, when)
    lasts_s = when.lasts_s
    return Fault(
        kind=kind, phase=when.phase, at_s=when.at_s, seconds=lasts_s, tenant=when.tenant, params=params
    )


def _kind(document: Document, path: Path, written: dict[str, Any]) -> str | None:
    known, kind = list(faults.kinds()), written.get("kind")
    if kind is None:
        document.complain(path, f"needs a kind (known: {', '.join(known)})")
        return None
    if not isinstance(kind, str) or kind not in known:
        hint = did_you_mean(str(kind), known)
        document.complain((*path, "kind"), f"no fault named {shown(kind)}{hint}")
        return None
    try:
        _model(kind)
    except (LookupError, UsageError) as error:
        document.complain((*path, "kind"), str(error.args[0]))
        return None
    return kind


def _model(kind: str) -> type[gateway_faults.GatewayFault] | type[provider_side.Fault]:
    """The class with the parameters. Raises LookupError or UsageError for a plug-in that cannot be loaded."""
    return gateway_faults.SEAM.get(kind) if faults.is_gateways(kind) else provider_side.of_kind(kind)


def _params(document: Document, path: Path, kind: str, written: dict[str, Any]) -> dict[str, Any]:
    """The parameters as written, after noting what is wrong with them."""
    common = ["kind", "params", *_When.model_fields]
    beside = {key: value for key, value in written.items() if key not in common}
    under = written.get("params", {})
    model = _model(kind)
    fields = [name for name in model.model_fields if name not in _PROVIDERS_OWN]
    if not isinstance(under, dict):
        document.complain((*path, "params"), f"must be a mapping, got {shown(under)}")
        return beside
    _check_known(document, path, beside, fields, [*fields, *common[1:]])
    _check_known(document, (*path, "params"), cast("dict[str, Any]", under), fields, fields)
    params = {**beside, **cast("dict[str, Any]", under)}
    known = {name: value for name, value in params.items() if name in fields}
    base = (*path, "params") if under else path
    validate(document, base, model, {**known, **_window_for(model)})
    return params


def _window_for(model: type[BaseModel]) -> dict[str, int]:
    """Any window will do to look at the rest."""
    return {"start_ns": 0, "end_ns": 1} if issubclass(model, provider_side.Fault) else {}


def _check_known(
    document: Document, path: Path, written: dict[str, Any], fields: list[str], suggested: list[str]
) -> None:
    for key in written:
        if key not in fields:
            hint = did_you_mean(str(key), suggested)
            document.complain((*path, key), f"unknown key{hint}", at_key=True)


def _check_when(document: Document, path: Path, kind: str, when: _When) -> None:
    """A phase, or an instant and a length, not both."""
    length = "restart_after_s" if kind == RESTARTS else "seconds"
    if when.restart_after_s is not None and kind != RESTARTS:
        document.complain((*path, "restart_after_s"), f"only {RESTARTS} restarts something: write seconds")
    elif when.restart_after_s is not None and when.seconds is not None:
        document.complain((*path, "seconds"), "is the same as restart_after_s: write one of them")
    if when.phase is None:
        for key, value in (("at_s", when.at_s), (length, when.lasts_s)):
            if value is None:
                document.complain(path, f"needs a phase, or at_s and {length}: {key} is missing")
                return
    elif when.at_s is not None or when.lasts_s is not None:
        document.complain((*path, "phase"), f"says when already: leave out at_s and {length}, or the phase")
    else:
        known = names_under(document, "phases")
        if known and when.phase not in known:
            document.complain((*path, "phase"), f"no phase '{when.phase}'{did_you_mean(when.phase, known)}")


def _check_tenant(document: Document, path: Path, kind: str, when: _When) -> None:
    if when.tenant is None:
        return
    if faults.is_gateways(kind) or not provider_side.of_kind(kind).by_tenant:
        document.complain((*path, "tenant"), f"{kind} hits everybody: it takes no tenant")
        return
    known = tenant_names(document)
    if known and when.tenant not in known:
        document.complain((*path, "tenant"), f"no tenant '{when.tenant}'{did_you_mean(when.tenant, known)}")
