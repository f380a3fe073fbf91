"""`declares:` of a target file: what a gateway promises, in the words of the gateway's configuration. Pure.

A check may hold against a gateway only what it has promised. What it is declared to promise takes the place
of what the profile says of the bundled gateway; what is declared of nothing stays unknown, and no verdict
rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from agentload import flavours
from agentload.errors import UsageError
from agentload.flavours import Flavour
from agentload.model import Noun, Profile, Tenant
from agentload.promises import DENIED_BY, WITHOUT, Promises, ShareUnit, Truth
from agentload.registry import did_you_mean
from agentload.scheduler.budget_config import BudgetConfig, BudgetsConfig
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, TenantConfig, UpstreamLimits
from agentload.scheduler.jobs_config import JobsSettings
from agentload.scheduler.pool import Pool
from agentload.scheduler.weight import Weight
from agentload.validation import validate
from agentload.yaml_positions import Document, shown

SECTION = "declares"
PROFILE: Literal["profile"] = "profile"
"""`declares: profile`: the gateway has been told just what the profile says."""
Written = dict[str, Any] | Literal["profile"] | None
"""The section as it stands in the file."""
ONE_CALL_EACH = "Each job is one chat call: this gateway takes no steps."
"""Behind the title of a profile with jobs, where that is how they were asked for."""


class TenantPromise(Noun):
    """What one tenant is promised. What is not said is not promised, but a weight: then it is 1."""

    weight: Weight | None = None
    slots: int | None = Field(default=None, ge=1)
    """Calls in flight, at most."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """As the provider counts them: max_tokens, or a quarter of the characters."""
    burst_s: float = Field(default=10.0, gt=0)
    """Seconds of either allowance that may come at once."""
    budget: BudgetConfig | None = None


class QueuePromise(Noun):
    """Bounds of the whole queue, over all classes."""

    requests: int | None = Field(default=None, ge=0)
    age_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.requests is None and self.age_s is None:
            raise ValueError("needs requests or age_s")
        return self


class UpstreamPromise(Noun):
    """What the gateway offers our provider at most, where that is less than the provider takes."""

    tokens_per_minute: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)
    bucket_s: float = Field(default=60.0, gt=0)

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.tokens_per_minute is None and self.requests_per_minute is None:
            raise ValueError("needs tokens_per_minute or requests_per_minute")
        return self


class BudgetsPromise(Noun):
    """Budgets that are not one tenant's."""

    everybody: BudgetConfig | None = Field(default=None, alias="global")
    tenant: BudgetConfig | None = None
    run: BudgetConfig | None = None


class JobsPromise(Noun):
    """Durable jobs with these numbers."""

    lease_s: float = Field(gt=0, le=3_600)
    max_attempts: int = Field(default=6, ge=1)


class Declares(Noun):
    """The whole section; every key may be left out."""

    fairness: ShareUnit | Literal["none"] | None = None
    tenants: dict[str, TenantPromise] = Field(default_factory=dict[str, TenantPromise])
    """By name, or by the name of several (`quiet` for quiet-1, quiet-2 …)."""
    each_tenant: TenantPromise | None = None
    """What holds for every tenant of which `tenants` does not say otherwise."""
    slots: int | None = Field(default=None, ge=1)
    """Calls at the provider, at most."""
    tenant_slots: int | None = Field(default=None, ge=1)
    """Those of one tenant."""
    classes: dict[str, ClassConfig] | None = Field(default=None, min_length=1)
    """Of a gateway with one pool; `min_units` are of 100, so per cent."""
    pools: dict[str, PoolConfig] | None = Field(default=None, min_length=1)
    """Of one with several, instead of the three above."""
    queue: QueuePromise | None = None
    budgets: BudgetsPromise | None = None
    upstream: UpstreamPromise | None = None
    deadlines: bool | None = None
    """It reads X-Deadline-Ms, and derives its own timeouts from it."""
    retry_after: bool | None = None
    """Its 429 and 503 carry Retry-After."""
    max_attempts: int | None = Field(default=None, ge=1)
    """From this attempt on a caller is told to give up."""
    idempotency_keys: bool | None = None
    """It knows a retry by its Idempotency-Key, and holds it to what it was told."""
    max_request_tokens: int | None = Field(default=None, ge=1)
    """More (prompt and max_tokens together) is refused for good, with 413."""
    jobs: bool | JobsPromise | None = None
    """true: it has durable jobs; a mapping says with which leases."""
    without: tuple[str, ...] = ()
    """What it promises nothing of (`promises.WITHOUT`): checks that rest on that alone are not asked."""

    @model_validator(mode="after")
    def _one_way_of_saying_pools(self) -> Self:
        if self.pools is not None and (self.slots or self.tenant_slots or self.classes):
            raise ValueError("has pools: say slots, tenant_slots and classes below them, not beside them")
        return self

    @model_validator(mode="after")
    def _weights_are_shared_by(self) -> Self:
        if self.fairness == "none" and any(one.weight is not None for one in self.said_of_tenants()):
            raise ValueError("has weights, and fairness: none: say in which unit they are kept")
        return self

    @field_validator("without")
    @classmethod
    def _are_promises(cls, without: tuple[str, ...]) -> tuple[str, ...]:
        for word in without:
            if word not in WITHOUT:
                hint = did_you_mean(word, sorted(WITHOUT)) or f" (known: {', '.join(WITHOUT)})"
                raise ValueError(f"no promise is called {shown(word)}{hint}")
        return without

    @model_validator(mode="after")
    def _says_nothing_twice(self) -> Self:
        if both := set(_denied(self)) & set(_known(self)):
            truth = next(truth for truth in Truth if truth in both)
            raise ValueError(f"says something of {truth}, and `{DENIED_BY[truth]}`: leave out one of the two")
        return self

    @model_validator(mode="after")
    def _floors_fit(self) -> Self:
        for pool in self.pools_said():
            try:
                Pool("gateway", pool)
            except UsageError as error:
                raise ValueError(str(error)) from None
        return self

    def said_of_tenants(self) -> list[TenantPromise]:
        """Whatever is said of tenants, one or all."""
        return [*self.tenants.values(), *([self.each_tenant] if self.each_tenant else [])]

    def of_tenant(self, tenant: Tenant) -> TenantPromise:
        """What it is promised: by its own name, its group's, then as everybody."""
        said = (self.each_tenant, self.tenants.get(tenant.group), self.tenants.get(tenant.name))
        merged: dict[str, Any] = {}
        for one in said:
            if one is not None:
                merged |= {key: getattr(one, key) for key in one.model_fields_set}
        return TenantPromise().model_copy(update=merged)

    def pools_said(self) -> Iterable[PoolConfig]:
        """The pools as written; none where only bounds of the whole gateway are declared."""
        if self.pools is not None:
            return self.pools.values()
        one = {
            key: value
            for key, value in (
                ("slots", self.slots),
                ("tenant_slots", self.tenant_slots),
                ("classes", self.classes),
            )
            if value is not None
        }
        return [PoolConfig.model_validate(one)] if one else []


def read(document: Document) -> Written:
    """The section of a target file, checked; problems are noted in the document."""
    written = document.get((SECTION,))
    if written is None:
        return None
    if isinstance(written, str):
        if written != PROFILE:
            document.complain((SECTION,), f"must be a mapping, or the word profile, got {shown(written)}")
            return None
        return PROFILE
    made = validate(document, (SECTION,), Declares, written)
    return cast("dict[str, Any]", written) if made is not None else None


def tenant_places(document: Document) -> dict[str, str]:
    """Where each tenant is named: `gateway.yaml:14:9`."""
    written = document.get((SECTION, "tenants"))
    if not isinstance(written, dict):
        return {}
    places = {name: document.keys.get((SECTION, "tenants", name)) for name in cast("dict[str, Any]", written)}
    return {name: place.label(document.file) for name, place in places.items() if place is not None}


def declared_tenants(written: Written) -> list[str]:
    """The tenants of which the section says something, by their own names or their groups'."""
    return list(written.get("tenants") or ()) if isinstance(written, dict) else []


# --------------------------------------------------------------------------- what follows for a run


def as_declared(profile: Profile, target: Mapping[str, Any]) -> tuple[Profile, Promises | None]:
    """The profile as this target (`Target.to_dict`) has it, and what is known of the target.

    The bundled gateway, and one that has been told just what the profile says, is known whole: None. Raises
    pydantic.ValidationError for a section that `read` would not have let pass.
    """
    written: Written = target.get(SECTION)
    if "host" not in target:
        return profile, None
    api = _api(target)
    profile = _as_asked(profile, api)
    if written == PROFILE:
        return profile, None
    said = Declares.model_validate(written or {})
    if said.jobs is None and api.asks_after_s is not None:
        said = said.model_copy(update={"jobs": True})  # whoever is asked after its work has jobs
    promises = Promises(
        known=frozenset(_known(said)),
        denied=frozenset(_denied(said)),
        fairness="tokens" if said.fairness is None or said.fairness == "none" else said.fairness,
        max_request_tokens=said.max_request_tokens,
        where=_where(str(target.get("name") or "")),
    )
    return _mapped(profile, said), promises


def hears_departures(target: Mapping[str, Any]) -> bool:
    """Whether this target (`Target.to_dict`) can be told that a client has left. The bundled one can."""
    return "host" not in target or _api(target).can_call_off


def _api(target: Mapping[str, Any]) -> Flavour:
    """In which words the target is asked."""
    kind = flavours.SEAM.get(str(target.get("flavour") or flavours.DEFAULT))
    return kind.model_validate(dict(target.get("options") or {}))


def _as_asked(profile: Profile, api: Flavour) -> Profile:
    """With its durable jobs as this API is asked for them."""
    if api.takes_steps or all(tenant.job is None for tenant in profile.tenants):
        return profile
    tenants = [
        t if t.job is None else t.model_copy(update={"job": api.job_order(t.job)}) for t in profile.tenants
    ]
    if tenants == list(profile.tenants):
        return profile
    return profile.model_copy(update={"tenants": tuple(tenants), "about": f"{profile.about} {ONE_CALL_EACH}"})


def _where(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else "a target file (`agentload init` writes one)"


def _known(said: Declares) -> Iterable[Truth]:
    tenants, pools = said.said_of_tenants(), list(said.pools_said())
    budgets = said.budgets or BudgetsPromise()
    has_limits = any(one.requests_per_minute or one.tokens_per_minute for one in tenants)
    has_budgets = any(one.budget for one in tenants) or any((budgets.everybody, budgets.tenant, budgets.run))
    classes = [one for pool in pools if "classes" in pool.model_fields_set for one in pool.classes.values()]
    bounded = bool(classes) and all("max_queue" in one.model_fields_set for one in classes)
    aged = bool(classes) and all("max_wait_s" in one.model_fields_set for one in classes)
    weighted = any(one.weight is not None for one in tenants)
    found = {
        Truth.WEIGHTS: weighted or said.fairness not in (None, "none"),
        Truth.SLOTS: bool(pools) and all("slots" in pool.model_fields_set for pool in pools),
        Truth.TENANT_SLOTS: any(p.tenant_slots for p in pools) or any(one.slots for one in tenants),
        Truth.TENANT_LIMITS: has_limits,
        Truth.BUDGETS: has_budgets,
        Truth.QUEUE_REQUESTS: bounded or (said.queue is not None and said.queue.requests is not None),
        Truth.QUEUE_AGE: aged or (said.queue is not None and said.queue.age_s is not None),
        Truth.CLASSES: bool(classes),
        Truth.POOLS: said.pools is not None and len(said.pools) > 1,
        Truth.DEADLINES: said.deadlines is True,
        Truth.RETRY_AFTER: said.retry_after is True,
        Truth.UPSTREAM: said.upstream is not None,
        Truth.MAX_ATTEMPTS: said.max_attempts is not None,
        Truth.IDEMPOTENCY_KEYS: said.idempotency_keys is True,
        Truth.MAX_REQUEST_TOKENS: said.max_request_tokens is not None,
        Truth.JOBS: bool(said.jobs),
        Truth.JOB_LEASES: isinstance(said.jobs, JobsPromise),
        Truth.JOB_ETAS: bool(said.jobs) and "job_etas" not in said.without,
    }
    return [truth for truth, is_known in found.items() if is_known]


def _denied(said: Declares) -> Iterable[Truth]:
    found = {
        Truth.WEIGHTS: said.fairness == "none",
        Truth.DEADLINES: said.deadlines is False,
        Truth.RETRY_AFTER: said.retry_after is False,
        Truth.IDEMPOTENCY_KEYS: said.idempotency_keys is False,
        Truth.JOBS: said.jobs is False,
        Truth.JOB_LEASES: said.jobs is False,
        Truth.JOB_ETAS: said.jobs is False,
    }
    gone_without = [truth for word in said.without for truth in WITHOUT[word]]
    return [*gone_without, *(truth for truth, is_denied in found.items() if is_denied)]


def _mapped(profile: Profile, said: Declares) -> Profile:
    """The profile with what is declared in the place of all that it says of the bundled gateway."""
    tenants = {tenant.name: said.of_tenant(tenant) for tenant in profile.tenants}
    weights = {name: one.weight or 1.0 for name, one in tenants.items()}
    return profile.model_copy(
        update={
            "tenants": tuple(t.model_copy(update={"weight": weights[t.name]}) for t in profile.tenants),
            "gateway": _gateway(profile, said, tenants),
        }
    )


def _gateway(profile: Profile, said: Declares, tenants: Mapping[str, TenantPromise]) -> GatewayConfig:
    base = GatewayConfig()
    budgets, upstream = said.budgets or BudgetsPromise(), said.upstream
    jobs = said.jobs if isinstance(said.jobs, JobsPromise) else None
    return base.model_copy(
        update={
            "pools": _pools(profile, said),
            "tenants": {t.name: _contract(t, tenants[t.name]) for t in profile.tenants},
            "retry": base.retry.model_copy(
                update={"max_attempts": said.max_attempts or base.retry.max_attempts}
            ),
            "budgets": BudgetsConfig().model_copy(update=dict(budgets)),
            "upstream": UpstreamLimits()
            if upstream is None
            else UpstreamLimits(**dict(upstream), margin=0.0),
            "jobs": None if jobs is None else JobsSettings(**dict(jobs)),
        }
    )


def _contract(tenant: Tenant, promise: TenantPromise) -> TenantConfig:
    fields = {key: value for key, value in dict(promise).items() if value is not None}
    return TenantConfig().model_copy(update={**fields, "service_class": tenant.service_class})


def _pools(profile: Profile, said: Declares) -> dict[str, PoolConfig]:
    """The declared pools, or one for everybody; what nobody bounds is as wide as the provider."""
    written = dict(zip(said.pools or ("gateway",), said.pools_said(), strict=False))
    everybody = {tenant.service_class: ClassConfig() for tenant in profile.tenants}
    pools = written or {"gateway": PoolConfig()}
    filled: dict[str, PoolConfig] = {}
    for name, pool in pools.items():
        slots = pool.slots if "slots" in pool.model_fields_set else profile.provider.slots or _UNBOUNDED
        update: dict[str, Any] = {"slots": slots, "tenant_slots": pool.tenant_slots or _UNBOUNDED}
        if "classes" not in pool.model_fields_set:
            update["classes"] = everybody
        filled[name] = pool.model_copy(update=update)
    return _bounded(filled, said.queue)


_UNBOUNDED = 1_000_000


def _bounded(pools: dict[str, PoolConfig], queue: QueuePromise | None) -> dict[str, PoolConfig]:
    """With the bounds of the whole queue: its requests in the first class of all, its age in each."""
    if queue is None:
        return pools
    left = queue.requests
    for name, pool in pools.items():
        classes: dict[str, ClassConfig] = {}
        for each, config in pool.classes.items():
            update: dict[str, Any] = {} if queue.age_s is None else {"max_wait_s": queue.age_s}
            if left is not None:
                update, left = update | {"max_queue": left}, 0
            classes[each] = config.model_copy(update=update)
        pools = pools | {name: pool.model_copy(update={"classes": classes})}
    return pools
