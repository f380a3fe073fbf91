"""A profile's YAML, checked as a whole: every problem at once, each with its place.

Each phase, tenant and check is validated by itself, so that one wrong number does not hide the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from agentload import arrivals, behaviours, checks, workloads
from agentload.arrivals import ArrivalProcess
from agentload.errors import ProfileError
from agentload.model import (
    ClientShare,
    Fault,
    JobOrder,
    LocustUsers,
    Noun,
    Phase,
    Profile,
    Scaling,
    Spec,
    Tenant,
)
from agentload.profile.cross_checks import (
    MAX_COUNT,
    Demand,
    check_references,
    check_sizes,
    cross_check_models,
    cross_check_phases,
    cross_check_policy,
    cross_check_tenants,
    elements,
    listed,
    numbered,
)
from agentload.profile.fault_entries import check_windows, read_faults
from agentload.profile.locust_section import read_locust
from agentload.registry import Seam
from agentload.scheduler.config import GatewayConfig, PoolConfig, TenantConfig, UpstreamLimits
from agentload.scheduler.weight import Weight
from agentload.validation import model_named, validate, validate_kind
from agentload.yaml_positions import Document, Path, shown
from fake_provider.config import ProviderConfig

M = TypeVar("M", bound=BaseModel)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]


class _Top(Noun):
    """The outermost keys; lists are validated element by element."""

    name: Name
    about: str
    seed: int = Field(default=1, ge=0)
    phases: list[Any] = Field(min_length=1)
    provider: ProviderConfig = ProviderConfig()
    gateway: GatewayConfig = GatewayConfig()
    tenants: list[Any] = Field(min_length=1)
    checks: list[Any] = Field(min_length=1)
    faults: list[Any] = Field(default_factory=list)
    drain_s: float = Field(default=10.0, ge=0, le=600)
    scale: Scaling = Scaling()


class _Phase(Phase):
    name: Name


class _Tenant(Noun):
    """A tenant as written; `arrivals`, `workload` and `client` are validated by their seams."""

    model_config = ConfigDict(populate_by_name=False)

    name: Name
    count: int = Field(default=1, ge=1, le=MAX_COUNT)
    service_class: Name = Field(default="standard", alias="class")
    weight: Weight = 1.0
    arrivals: Any = None
    users: int | None = Field(default=None, ge=1, le=10_000)
    think_s: float = Field(default=0.0, ge=0, le=3600)
    during: tuple[str, ...] = ()
    workload: Any
    client: Any = "no-retry"
    clients: Any = None
    model: str | None = Field(default=None, min_length=1, max_length=200)
    job: JobOrder | None = None
    locust: Any = None

    def names(self) -> list[str]:
        """The tenants it stands for: `quiet` alone, or `quiet-1`, `quiet-2`, …"""
        return [self.name] if self.count == 1 else numbered(self.name, self.count)


class _LocustTenant(_Tenant):
    """One whose users' own code says what they send."""

    workload: Any = None


class _Written(NamedTuple):
    """A valid tenant, its place and its parts."""

    path: Path
    source: _Tenant
    process: ArrivalProcess | None
    parts: dict[str, Spec]
    clients: tuple[ClientShare, ...]
    locust: LocustUsers | None


def read(document: Document) -> Profile:
    """The profile. Raises ProfileError with every problem found."""
    if document.data is None:
        raise ProfileError(f"{document.file}: is empty; a profile needs a name, phases, tenants and checks")
    if not isinstance(document.data, dict):
        raise ProfileError(f"{document.file}:1:1: must be a mapping, got {shown(document.data)}")
    top = validate(document, (), _Top, document.data)
    phases = [p for path, raw in elements(document, "phases") if (p := validate(document, path, _Phase, raw))]
    tenants = [t for path, raw in elements(document, "tenants") if (t := _tenant(document, path, raw))]
    specs = [s for path, raw in elements(document, "checks") if (s := _check(document, path, raw))]
    faults = read_faults(document)
    cross_check_phases(document)
    cross_check_tenants(document)
    cross_check_models(document)
    demands = [Demand(t.path, t.source.count, t.source.during, t.process) for t in tenants]
    check_sizes(document, demands, phases)
    cross_check_policy(document)
    document.raise_problems()
    assert top is not None  # else there was a problem
    profile = _assemble(document, top, phases, tenants, specs, faults)
    check_windows(document, profile)  # only now are the lengths of all phases known to be right
    document.raise_problems()
    return profile


# --------------------------------------------------------------------------- one element at a time


def _tenant(document: Document, path: Path, raw: Any) -> _Written | None:
    own_code = isinstance(raw, dict) and raw.get("locust") is not None
    source = validate(document, path, _LocustTenant if own_code else _Tenant, raw)
    if not isinstance(raw, dict):
        return None
    parts: dict[str, Spec] = {}
    written = cast("dict[str, Any]", raw)
    if own_code:
        locust = read_locust(document, path, written)
        _part(document, path, {"client": "no-retry"}, "client", behaviours.SEAM, parts)
        return None if source is None else _Written(path, source, None, parts, (), locust)
    process = _part(document, path, written, "arrivals", arrivals.SEAM, parts)
    _part(document, path, written, "workload", workloads.SEAM, parts)
    _part(document, path, {"client": "no-retry", **written}, "client", behaviours.SEAM, parts)
    clients = _clients(document, path, written)
    _check_load(document, path, written)
    _check_job(document, path, written)
    return None if source is None else _Written(path, source, process, parts, clients, None)


def _part(
    document: Document, path: Path, raw: dict[str, Any], key: str, seam: Seam[M], parts: dict[str, Spec]
) -> M | None:
    """Validate one of a tenant's seam parts; a good one is also noted in `parts`."""
    if raw.get(key) is None:
        if key in raw and key != "arrivals":
            document.complain((*path, key), "must be a mapping with a kind, got nothing")
        return None
    made = validate_kind(document, (*path, key), seam, raw[key])
    if made is None:
        return None
    kind, instance = made
    parts[key] = Spec(kind=kind, params=_params(raw[key]))
    return instance


def _clients(document: Document, path: Path, raw: dict[str, Any]) -> tuple[ClientShare, ...]:
    """A population: `clients: [{share: 0.5, kind: …}, …]`; the shares must make a whole."""
    if raw.get("clients") is None:
        return ()
    if raw.get("client") is not None:
        document.complain((*path, "clients"), "has a client already: write one of the two")
    members = [_member(document, place, one) for place, one in listed(document, (*path, "clients"))]
    found = tuple(one for one in members if one is not None)
    if not members:
        document.complain((*path, "clients"), "must be a list such as [{share: 1, kind: openai-sdk}]")
    elif len(found) == len(members) and abs(sum(one.share for one in found) - 1) > 1e-6:
        total = sum(one.share for one in found)
        document.complain((*path, "clients"), f"the shares must add up to 1, got {total:g}")
    return found


class _Share(Noun):
    share: float = Field(gt=0, le=1)


def _member(document: Document, path: Path, raw: Any) -> ClientShare | None:
    if not isinstance(raw, dict):
        document.complain(path, f"must be a mapping such as {{share: 0.5, kind: obeys}}, got {shown(raw)}")
        return None
    client = {key: value for key, value in cast("dict[str, Any]", raw).items() if key != "share"}
    share = validate(document, path, _Share, {"share": raw["share"]} if "share" in raw else {})
    made = validate_kind(document, path, behaviours.SEAM, client)
    if share is None or made is None:
        return None
    return ClientShare(share=share.share, client=Spec(kind=made[0], params=_params(client)))


def _params(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        return {}
    return {key: value for key, value in cast("dict[str, Any]", raw).items() if key != "kind"}


def _check_load(document: Document, path: Path, raw: dict[str, Any]) -> None:
    """An open loop or a closed one, not both."""
    is_open, is_closed = raw.get("arrivals") is not None, raw.get("users") is not None
    if is_open and is_closed:
        document.complain((*path, "users"), "has arrivals already: a tenant is an open loop or a closed one")
    elif not is_open and not is_closed:
        document.complain(
            path, "needs arrivals (an open loop), users (a closed loop) or locust (users of your own code)"
        )
    elif is_open and raw.get("think_s"):
        document.complain((*path, "think_s"), "only closed loops (users) think")


def _check_job(document: Document, path: Path, raw: dict[str, Any]) -> None:
    """Durable jobs come in an open loop, from a client that is as patient as they are."""
    if raw.get("job") is None:
        return
    if raw.get("users") is not None:
        document.complain((*path, "job"), "jobs come as arrivals, not from users: write arrivals instead")
    for key in ("client", "clients"):
        if raw.get(key) is not None:
            document.complain((*path, key), "a job's client posts and polls: leave this out beside job")
    if document.get(("gateway", "jobs")) is None:
        document.complain((*path, "job"), "the gateway keeps no jobs: add `jobs: {}` below `gateway:`")


def _check(document: Document, path: Path, raw: Any) -> Spec | None:
    """A bare name, or a mapping of one name to parameters."""
    if isinstance(raw, str):
        raw = {raw: {}}
    if not isinstance(raw, dict) or len(cast("dict[str, Any]", raw)) != 1:
        document.complain(path, f"must be a check's name, or one name with parameters, got {shown(raw)}")
        return None
    [(name, params)] = cast("dict[str, Any]", raw).items()
    params = {} if params is None else params
    inner = (*path, name) if (*path, name) in document.places else path
    model = model_named(document, inner, checks.SEAM, name)
    if model is None:
        return None
    check = validate(document, inner, model, params)
    if isinstance(params, dict):
        check_references(document, inner, model, cast("dict[str, Any]", params))
    return None if check is None else Spec(kind=name, params=params)


# --------------------------------------------------------------------------- putting it together


def _assemble(
    document: Document,
    top: _Top,
    phases: list[_Phase],
    written: list[_Written],
    specs: list[Spec],
    faults: list[Fault],
) -> Profile:
    tenants = tuple(tenant for one in written for tenant in _expanded(one))
    return Profile(
        name=top.name,
        about=top.about,
        seed=top.seed,
        phases=tuple(Phase(**dict(phase)) for phase in phases),
        tenants=tenants,
        provider=top.provider,
        gateway=_gateway(top, tenants, document),
        checks=tuple(specs),
        faults=tuple(faults),
        drain_s=top.drain_s,
        scale=top.scale,
    )


def _expanded(written: _Written) -> Iterator[Tenant]:
    source, parts = written.source, written.parts
    most = max(written.clients, key=lambda one: one.share, default=None)
    for name in source.names():
        yield Tenant(
            name=name,
            group=source.name,
            service_class=source.service_class,
            weight=source.weight,
            arrivals=parts.get("arrivals"),
            users=source.users,
            think_s=source.think_s,
            during=source.during,
            workload=parts.get("workload"),
            client=parts["client"] if most is None else most.client,
            clients=written.clients,
            model=source.model,
            job=source.job,
            locust=written.locust,
        )


def _gateway(top: _Top, tenants: Sequence[Tenant], document: Document) -> GatewayConfig:
    """The gateway knows the profile's tenants and the provider's limits, unless it was told otherwise."""
    upstream: dict[str, Any] = document.get(("gateway", "upstream")) or {}
    contracts = {
        t.name: TenantConfig.model_validate({"class": t.service_class, "weight": t.weight}) for t in tenants
    }
    return top.gateway.model_copy(
        update={
            "upstream": UpstreamLimits.model_validate({**_upstream(top.provider), **upstream}),
            "tenants": {
                **contracts,
                **{n: _merged(contracts.get(n), t) for n, t in top.gateway.tenants.items()},
            },
            "pools": _pools(top, document),
        }
    )


def _upstream(provider: ProviderConfig) -> dict[str, Any]:
    """What the gateway can be told of the provider's limits.

    A call is charged at least its prompt, so a limit on prompts is kept by one on charges. Nothing keeps one
    on what is produced but the provider's own refusals: charged ahead, most of it would never be used.
    """
    limits = provider.model_limits if provider.policy == "openai" else {}
    return {
        "tokens_per_minute": provider.tokens_per_minute or provider.input_tokens_per_minute,
        "requests_per_minute": provider.requests_per_minute,
        "bucket_s": provider.bucket_s,
        "models": {name: one.model_dump() for name, one in limits.items()},
    }


def _merged(contract: TenantConfig | None, written: TenantConfig) -> TenantConfig:
    """What the profile says of a tenant, but for what is written below `gateway.tenants`."""
    if contract is None:
        return written
    return contract.model_copy(update={key: getattr(written, key) for key in written.model_fields_set})


def _pools(top: _Top, document: Document) -> dict[str, PoolConfig]:
    """The pools; those that do not say their `slots` share what the others leave of the provider's."""
    pools = dict(top.gateway.pools)
    silent = [name for name in pools if document.get(("gateway", "pools", name, "slots")) is None]
    if top.provider.slots is None or not silent:
        return pools
    left = top.provider.slots - sum(pool.slots for name, pool in pools.items() if name not in silent)
    slots = max(1, left // len(silent))
    return pools | {name: pools[name].model_copy(update={"slots": slots}) for name in silent}
