"""What an operator may configure: the article's YAML, loaded as it stands, plus limits and tenants."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from agentload.scheduler.budget_config import BudgetConfig, BudgetsConfig, PriceConfig
from agentload.scheduler.jobs_config import JobsSettings
from agentload.scheduler.section import Section as _Section
from agentload.scheduler.weight import Weight


class WhenFull(StrEnum):
    """What a full class queue answers."""

    REJECT = "reject"
    """429 `class_queue_full`."""
    DEFER = "defer"
    """A durable job is kept and starts later; a chat call, whose client waits for it and reads no 202, is
    refused with 503 `deferred_class_full`."""


def _all_or_nothing(value: object) -> object:
    """true: all of it, false: nothing."""
    return float(value) if isinstance(value, bool) else value


def _any_or_nothing(value: object) -> object:
    """true: no limit, false: nothing."""
    return (None if value else 0.0) if isinstance(value, bool) else value


class ClassConfig(_Section):
    """One service class of a pool."""

    nominal_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the pool's units (and slots) this class gets under contention."""
    min_units: float = Field(default=0.0, ge=0)
    """A floor that no other class may borrow."""
    max_queue: int = Field(default=256, ge=0)
    """Requests waiting, at most."""
    response_when_full: WhenFull = WhenFull.REJECT
    tenant_max_queue: int | None = Field(default=None, ge=0)
    """Requests of one tenant waiting, at most. None: half of max_queue (at least 1). With `shuffle_shards` it
    counts for one queue, and None is half of max_queue over the hand."""
    max_queue_units: float | None = Field(default=None, gt=0)
    """Work units waiting, at most. None: no bound beside max_queue."""
    max_queue_bytes: int = Field(default=64 * 2**20, gt=0)
    """Bytes of request bodies waiting, at most."""
    max_wait_s: float = Field(default=30.0, gt=0)
    """Queue age, at most: a request that waited so long is answered 504."""
    lendable: Annotated[float, BeforeValidator(_all_or_nothing)] = Field(default=1.0, ge=0, le=1)
    """Share of its nominal capacity that others may borrow while it has no use for it; true: all, false:
    none. `min_units` is never lent. Kubernetes APF calls it lendablePercent (KEP-1040)."""
    borrows: Annotated[float | None, BeforeValidator(_any_or_nothing)] = Field(
        default=None, ge=0, allow_inf_nan=False
    )
    """How far beyond its nominal capacity it may go, as a share of that: 0.5 is half as much again; true (or
    None): as far as there is room, false: not at all. APF's borrowingLimitPercent."""


class ShuffleConfig(_Section):
    """Queues that tenants are dealt, instead of one for each: see `agentload.scheduler.shards`."""

    queues: int = Field(default=128, ge=1, le=100_000)
    """In each class."""
    hand: int = Field(default=6, ge=1, le=16)
    """Queues that one tenant may use."""
    seed: int = Field(default=0, ge=0, lt=2**64)
    """Of the hands. Keep it to yourself: who knows it can make up names that meet a victim in its queues."""

    @model_validator(mode="after")
    def _hand_fits(self) -> Self:
        if self.hand > self.queues:
            raise ValueError(f"a hand of {self.hand} cannot be dealt from {self.queues} queues")
        return self


class PoolConfig(_Section):
    """Capacity that a set of classes shares."""

    capacity_units: float = Field(default=100.0, gt=0)
    slots: int = Field(default=16, ge=1)
    """Calls in flight, at most."""
    tenant_slots: int | None = Field(default=None, ge=1)
    """Calls in flight of one tenant, at most. None: half the slots, at least 1 (see DESIGN on long calls).
    With `shuffle_shards` it counts for one queue, and None is half the slots over the hand."""
    headroom: float = Field(default=0.0, ge=0, lt=1)
    """Share of units and slots that stays free for a class that has less than its nominal share of the rest:
    its burst starts at once, and does not wait for the calls of borrowers to end. Where slots bind it costs
    its share of the throughput (`priority-flood` without floors: 0.2 cuts that wait from 237 to 42 ms and
    leaves 3 of 16 slots idle). A floor, `min_units`, does more for one class at less cost, hence 0."""
    shuffle_shards: ShuffleConfig | None = None
    """For very many tenants: queues that they share. Tenants with a weight or slots of their own below
    `tenants` keep a queue of their own."""
    gather_after_s: float = Field(default=1.0, ge=0)
    """A job too wide for the free units is passed by others for so long; then units are kept for it."""
    lease_s: float = Field(default=600.0, gt=0)
    """A call that nothing is heard of for so long (no progress, no end) loses its capacity."""
    classes: dict[str, ClassConfig] = Field(default_factory=lambda: {"standard": ClassConfig()}, min_length=1)

    @property
    def lanes_each(self) -> int:
        """Queues that one tenant may use in a class."""
        return 1 if self.shuffle_shards is None else self.shuffle_shards.hand

    @property
    def lane_slots(self) -> int:
        """Calls in flight of one queue, at most: half the slots over the queues of a tenant, rounded up."""
        return self.tenant_slots or -(-self.slots // (2 * self.lanes_each))

    @model_validator(mode="after")
    def _floors_fit(self) -> Self:
        floors = sum(c.min_units for c in self.classes.values())
        if floors > self.capacity_units:
            raise ValueError(f"the classes' min_units add up to {floors:g}, more than capacity_units")
        return self


class RetryConfig(_Section):
    """What a refused caller is told."""

    max_attempts: int = Field(default=6, ge=1)
    base_seconds: float = Field(default=2.0, gt=0)
    """Floor of Retry-After: base * 2**attempt, as the article has it, for callers that come back again."""
    max_seconds: float = Field(default=120.0, gt=0)
    jitter: Literal["full", "none"] = "full"
    spread: Literal["tickets", "same"] = "tickets"
    """tickets: the k-th refused caller is told when the k-th slot is due; same: everybody the same number."""
    remembered_keys: int = Field(default=100_000, ge=1)
    """Idempotency keys of unanswered requests that are kept, at most, and a tenth of them of one tenant."""

    @model_validator(mode="after")
    def _floor_below_cap(self) -> Self:
        if self.base_seconds > self.max_seconds:
            raise ValueError(
                f"base_seconds {self.base_seconds:g} is more than max_seconds {self.max_seconds:g}"
            )
        return self


class EstimationConfig(_Section):
    """How the cost of a request is guessed before it runs."""

    max_reservation_units: float = Field(default=40.0, gt=0)
    """A wider request is refused for good (413), never with 429."""
    update_window: int = Field(default=500, ge=1)
    safety_multiplier: float = Field(default=1.25, ge=1)
    units_per_1000_tokens: float = Field(default=1.0, ge=0)
    units_per_tool_call: float = Field(default=0.25, ge=0)
    units_per_tool_second: float = Field(default=0.1, ge=0)
    default_output_tokens: int = Field(default=256, ge=1)
    """Assumed where a caller sends no max_tokens and nothing has been learnt yet."""


class TenantConfig(_Section):
    """One tenant's contract."""

    service_class: str = Field(default="standard", alias="class")
    weight: Weight = 1.0
    slots: int | None = Field(default=None, ge=1)
    """Calls in flight, at most, in each pool. None: the pool's `tenant_slots`."""
    key_env: str | None = None
    """Environment variable that holds the tenant's bearer key. None: the tenant is named by `X-Tenant`."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """Requests let in, at most; beyond, 429 `tenant_over_limit`. None: no limit."""
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """The same in tokens, counted as the provider counts them: max_tokens, or a quarter of the characters."""
    burst_s: float = Field(default=10.0, gt=0)
    """Seconds of either allowance that may come at once."""
    budget: BudgetConfig | None = None
    """What it may spend. None: `budgets.tenant`."""

    @property
    def is_limited(self) -> bool:
        """Whether it has limits of its own."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None


class ModelLimits(_Section):
    """The limits of one model; what is not said is not limited."""

    tokens_per_minute: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)
    bucket_s: float | None = Field(default=None, gt=0)
    """None: as of the other models."""
    fallback: str | None = None
    """The model that a request is sent to instead when it would have to wait for too long. None: it waits."""
    fallback_after_s: float = Field(default=1.0, ge=0)
    """A wait of so long in all is too long."""


class UpstreamLimits(_Section):
    """The provider's limits, which the gateway must never offer more than."""

    tokens_per_minute: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)
    bucket_s: float = Field(default=60.0, gt=0)
    """Seconds of allowance that the provider's bucket holds."""
    margin: float = Field(default=0.04, ge=0, lt=1)
    """Held back, because two clocks and two token counts never agree to the last digit."""
    models: dict[str, ModelLimits] = Field(default_factory=dict)
    """Models with limits of their own; the others share those above."""

    @model_validator(mode="after")
    def _falls_back_elsewhere(self) -> Self:
        for name, one in self.models.items():
            if one.fallback == name:
                raise ValueError(f"model '{name}' cannot be its own fallback; name another or leave it out")
        return self

    def of(self, model: str) -> UpstreamLimits:
        """Those of one model that has its own."""
        own = self.models[model]
        return UpstreamLimits(
            tokens_per_minute=own.tokens_per_minute,
            requests_per_minute=own.requests_per_minute,
            bucket_s=own.bucket_s or self.bucket_s,
            margin=self.margin,
        )


class GatewayConfig(_Section):
    """The reference gateway, whole."""

    policy: str = "sfq"
    pools: dict[str, PoolConfig] = Field(default_factory=lambda: {"agent-shared": PoolConfig()}, min_length=1)
    retry: RetryConfig = RetryConfig()
    estimation: EstimationConfig = EstimationConfig()
    upstream: UpstreamLimits = UpstreamLimits()
    tenants: dict[str, TenantConfig] = Field(default_factory=dict)
    """Known tenants; anyone else gets the defaults of TenantConfig, weight 1."""
    budgets: BudgetsConfig = BudgetsConfig()
    prices: dict[str, PriceConfig] = Field(default_factory=dict)
    """By model; one without a price costs as much as the dearest."""
    max_tenants: int = Field(default=100_000, ge=1)
    """State kept for so many tenants at most; idle ones are forgotten."""
    jobs: JobsSettings | None = None
    """Durable jobs. None: there are none."""

    @model_validator(mode="after")
    def _classes_exist(self) -> Self:
        known = [name for pool in self.pools.values() for name in pool.classes]
        if len(set(known)) != len(known):
            raise ValueError("a service class may belong to one pool only")
        for tenant, config in self.tenants.items():
            if config.service_class not in known:
                raise ValueError(f"tenant '{tenant}': no class '{config.service_class}'")
        return self

    @model_validator(mode="after")
    def _costs_have_prices(self) -> Self:
        own = [tenant.budget for tenant in self.tenants.values()]
        budgets = [self.budgets.everybody, self.budgets.tenant, self.budgets.run, *own]
        if not self.prices and any(budget is not None and budget.cost is not None for budget in budgets):
            raise ValueError(
                "a budget in cost needs prices: {MODEL: {input_per_million, output_per_million}}"
            )
        return self
