"""`--scale`: the same experiment for a gateway and a provider of another size. Pure.

What is extensive (rates, users, slots, queues, limits in tokens or requests, what checks count) is
multiplied; shares, latencies, patience and the sizes of single requests stay. So the load stays what it was,
relative to the capacity. Below 1 phases last longer, so that each still brings as many samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil, sqrt
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from agentload import arrivals, checks
from agentload.errors import UsageError
from agentload.extensive import Growth, grown
from agentload.faults import is_gateways
from agentload.model import NS, Fault, Profile, Spec, Tenant
from agentload.profile.capacity import by_limits, by_slots, jobs_in, service_s
from agentload.profile.cross_checks import MAX_ARRIVALS
from agentload.profile.stretch import stretched
from agentload.scheduler.budget_config import BudgetConfig, BudgetsConfig, Per
from agentload.scheduler.config import GatewayConfig, PoolConfig, TenantConfig
from agentload.yaml_positions import on_one_line
from fake_provider import faults as provider_side
from fake_provider.config import ProviderConfig

AUTO = "auto"
"""`--scale auto`: `agentload.calibration` finds the factor."""
MIN_FACTOR, MAX_FACTOR = 0.001, 1_000.0
LEAST_SLOTS = 2
"""With one slot there is no concurrency left to share."""
LEAST_CALLS = 3
"""With a bucket of one call, each has to be timed by itself."""
LONGEST_S = 1_800.0
"""Phases are not made longer than this, together: then they bring fewer samples, and checks say so."""

PROVIDER = (
    "tokens_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "requests_per_minute",
    "max_queue",
)  # fmt: skip
LIMITS = ("tokens_per_minute", "requests_per_minute")
CLASS = ("max_queue", "tenant_max_queue", "max_queue_units", "max_queue_bytes")
JOBS = ("max_queued", "tenant_max_queued", "max_bytes", "max_kept", "tool_slots", "tool_tenant_slots")
BUDGET = ("tokens", "cost", "calls")
LOCUST = ("users", "spawn_rate")
SLOTS = ("slots",)
POOL = ("slots", "tenant_slots", "capacity_units")
FLOOR = ("min_units",)
"""These and those of POOL and SLOTS are capacity in use at once."""

M = TypeVar("M", bound=BaseModel)


class Bound(NamedTuple):
    """How small (or large) a profile can be made, and what would go wrong beyond."""

    factor: float
    because: str


def factor_of(text: str | None) -> float | None:
    """`--scale`: a factor; None for `auto` and where nothing was said. Raises UsageError."""
    if text is None or text == AUTO:
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not MIN_FACTOR <= factor <= MAX_FACTOR:
        raise UsageError(
            f"--scale {on_one_line(text)}: must be {AUTO}, or a factor from {MIN_FACTOR:g} to "
            f"{MAX_FACTOR:g}, e.g. 0.25"
        )
    return factor


def scaled_as(profile: Profile, text: str | None) -> Profile:
    """As `--scale TEXT` says where there is nothing that `auto` could measure. Raises UsageError."""
    if text == AUTO:
        raise UsageError("--scale auto: measures a target, and here is none: say a factor, e.g. --scale 0.25")
    factor = factor_of(text)
    return profile if factor is None else scaled(profile, factor)


def facts(profile: Profile, factor: float) -> dict[str, Any]:
    """What a report says of a profile that was scaled; of the profile as it was before."""
    return {"factor": factor, "phases_longer": round(lengthening(profile, factor), 6)}


def scaled(profile: Profile, factor: float) -> Profile:
    """The profile for a gateway and a provider `factor` times as large. By 1 it is itself.

    Raises UsageError, in one line, for a factor that would leave nothing to measure.
    """
    if factor == 1:
        return profile
    _refuse_beyond(profile, factor)
    by = growth(profile, factor)
    long = stretched(profile, dict.fromkeys((phase.name for phase in profile.phases), by.time))
    whole = long.model_copy(
        update={
            "tenants": tuple(_tenant(tenant, factor) for tenant in profile.tenants),
            "provider": _provider(profile.provider, by),
            "gateway": _gateway(profile.gateway, by),
            "faults": tuple(_fault(fault, by) for fault in long.faults),
            "checks": tuple(_check(spec, by) for spec in profile.checks),
        }
    )
    _refuse_too_many(whole, factor)
    return whole


def growth(profile: Profile, factor: float) -> Growth:
    """What the profile's quantities are multiplied by."""
    return Growth(load=factor, slots=_slots(profile, factor), time=lengthening(profile, factor))


def slots_decide(profile: Profile) -> bool:
    """Whether slots, and not tokens or calls a minute, are what its provider runs out of first."""
    jobs = jobs_in(profile)
    slots, limits = by_slots(profile.provider, jobs), by_limits(profile.provider, jobs)
    return limits is None or (slots is not None and slots <= limits)


def _slots(profile: Profile, factor: float) -> float:
    """Fewer calls at once vary by more, relative to their mean.

    Where tokens bind first, the slots beyond those in use on average are a reserve of so many standard
    deviations (√n: square-root staffing, Halfin and Whitt 1981); that many stay.
    """
    slots, jobs = profile.provider.slots, jobs_in(profile)
    if factor >= 1 or slots is None or slots_decide(profile):
        return factor
    busy = (by_limits(profile.provider, jobs) or 0.0) * service_s(profile.provider.latency, jobs)
    reserve = (slots - busy) / sqrt(busy)
    return max(factor, ceil(busy * factor + reserve * sqrt(busy * factor) - 1e-6) / slots)


def lengthening(profile: Profile, factor: float) -> float:
    """What the phases are multiplied by: 1 ÷ factor, within `LONGEST_S`; never less than 1."""
    most = max(1.0, LONGEST_S * NS / profile.duration_ns)
    return min(most, max(1.0, 1 / factor))


def least(profile: Profile) -> Bound:
    """The smallest factor that leaves something to measure."""
    limits = [Bound(profile.scale.least, profile.scale.because), *_whole_numbers(profile)]
    return max(limits, key=lambda one: one.factor)


def most(profile: Profile) -> Bound:
    """The largest factor that the profile allows."""
    return Bound(profile.scale.most, profile.scale.because)


# --------------------------------------------------------------------------- what cannot be


def _refuse_beyond(profile: Profile, factor: float) -> None:
    low, high = least(profile), most(profile)
    if low.factor <= factor <= high.factor:
        return
    bound = low if factor < low.factor else high
    name, at = profile.name, f"{bound.factor:.4g}"
    if low.factor >= high.factor:
        raise UsageError(f"--scale {factor:g}: {name} cannot be scaled: {bound.because}")
    word = "less" if factor < low.factor else "more"
    raise UsageError(f"--scale {factor:g}: {name} cannot be scaled by {word} than {at}: {bound.because}")


def _whole_numbers(profile: Profile) -> Iterator[Bound]:
    """What comes in whole numbers, and the factor at which there would be too few."""
    yield from _slot_bounds(profile) if slots_decide(profile) else _bucket_bounds(profile)
    for tenant in profile.tenants:
        users = tenant.users if tenant.locust is None else tenant.locust.users
        if users is not None:
            yield Bound(1 / users, f"{tenant.name} has {users} users, and one must remain")
        if tenant.arrivals is not None:
            fewest = arrivals.make(tenant.arrivals).least_factor()
            yield Bound(
                fewest, f"of {tenant.name}'s {tenant.arrivals.kind} one request at a time must remain"
            )


def _slot_bounds(profile: Profile) -> Iterator[Bound]:
    slots = {"provider.slots": profile.provider.slots}
    slots |= {f"gateway.pools.{name}.slots": pool.slots for name, pool in profile.gateway.pools.items()}
    for place, count in slots.items():
        if count is not None and count >= LEAST_SLOTS:
            yield Bound(LEAST_SLOTS / count, f"{place} is {count}, and {LEAST_SLOTS} must remain")


def _bucket_bounds(profile: Profile) -> Iterator[Bound]:
    held = (by_limits(profile.provider, jobs_in(profile)) or 0.0) * profile.provider.bucket_s
    if held >= LEAST_CALLS:
        because = f"the provider's bucket holds {held:.0f} calls, and {LEAST_CALLS} must remain"
        yield Bound(LEAST_CALLS / held, because)


def _refuse_too_many(profile: Profile, factor: float) -> None:
    total = sum(
        arrivals.make(tenant.arrivals).mean_count(phase.seconds) or 0.0
        for phase in profile.phases
        for tenant in profile.tenants
        if tenant.arrivals is not None and (not tenant.during or phase.name in tenant.during)
    )
    if total > MAX_ARRIVALS:
        raise UsageError(
            f"--scale {factor:g}: {profile.name} would have {total:,.0f} arrivals, at most {MAX_ARRIVALS:,} "
            "are planned: scale it by less"
        )


# --------------------------------------------------------------------------- piece by piece


def _tenant(tenant: Tenant, factor: float) -> Tenant:
    if tenant.arrivals is None:
        users = None if tenant.locust is None else _times(tenant.locust, LOCUST, factor)
        return tenant.model_copy(update={"users": grown(tenant.users, factor), "locust": users})
    try:
        process = arrivals.make(tenant.arrivals)
        spec = _changed(tenant.arrivals, process, process.scaled(factor))
        arrivals.make(spec)
    except ValidationError as error:
        because = f"{error.errors()[0]['loc'][0]} {error.errors()[0]['msg']}"
        raise UsageError(f"--scale {factor:g}: {tenant.name}: {tenant.arrivals.kind}: {because}") from None
    except UsageError as error:
        raise UsageError(f"--scale {factor:g}: {tenant.name}: {tenant.arrivals.kind}: {error}") from None
    return tenant.model_copy(update={"arrivals": spec})


def _check(spec: Spec, by: Growth) -> Spec:
    check = checks.make(spec)
    return _changed(spec, check, check.scaled(by))


def _changed(spec: Spec, before: BaseModel, after: BaseModel) -> Spec:
    """The spec with the parameters in which the two instances differ."""
    new = {
        name: value
        for name in type(after).model_fields
        if (value := getattr(after, name)) != getattr(before, name)
    }
    return spec.model_copy(update={"params": spec.params | new}) if new else spec


def _fault(fault: Fault, by: Growth) -> Fault:
    if is_gateways(fault.kind):
        return fault
    slots = provider_side.of_kind(fault.kind).extensive_slots
    new = {name: grown(fault.params[name], by.slots) for name in slots if name in fault.params}
    return fault.model_copy(update={"params": fault.params | new})


def _provider(config: ProviderConfig, by: Growth) -> ProviderConfig:
    models = {name: _times(one, LIMITS, by.load) for name, one in config.model_limits.items()}
    large = _times(_times(config, PROVIDER, by.load), SLOTS, by.slots)
    return large.model_copy(update={"model_limits": models})


def _gateway(config: GatewayConfig, by: Growth) -> GatewayConfig:
    upstream = _times(config.upstream, LIMITS, by.load)
    models = {name: _times(one, LIMITS, by.load) for name, one in upstream.models.items()}
    return config.model_copy(
        update={
            "pools": {name: _pool(pool, by) for name, pool in config.pools.items()},
            "upstream": upstream.model_copy(update={"models": models}),
            "tenants": {name: _contract(one, by) for name, one in config.tenants.items()},
            "budgets": _budgets(config.budgets, by),
            "jobs": None if config.jobs is None else _times(config.jobs, JOBS, by.load),
        }
    )


def _contract(tenant: TenantConfig, by: Growth) -> TenantConfig:
    large = _times(_times(tenant, LIMITS, by.load), SLOTS, by.slots)
    return large.model_copy(update={"budget": _budget(tenant.budget, by)})


def _pool(pool: PoolConfig, by: Growth) -> PoolConfig:
    queues = {name: _times(one, CLASS, by.load) for name, one in pool.classes.items()}
    classes = {name: _times(one, FLOOR, by.slots) for name, one in queues.items()}
    large = _times(pool, POOL, by.slots)
    floors = sum(one.min_units for one in classes.values())  # may be a rounding error above the whole
    units = max(large.capacity_units, floors)
    return large.model_copy(update={"classes": classes, "capacity_units": units})


def _budgets(budgets: BudgetsConfig, by: Growth) -> BudgetsConfig:
    """A run's budget is that of one user, who does what it did before."""
    new = {"everybody": _budget(budgets.everybody, by), "tenant": _budget(budgets.tenant, by)}
    return budgets.model_copy(update=new)


def _budget(budget: BudgetConfig | None, by: Growth) -> BudgetConfig | None:
    if budget is None:
        return None
    return _times(budget, BUDGET, by.load * by.time if budget.per is Per.TOTAL else by.load)


def _times(model: M, names: Iterable[str], factor: float) -> M:
    new: Mapping[str, Any] = {name: grown(getattr(model, name), factor) for name in names}
    return model.model_copy(update=dict(new))
