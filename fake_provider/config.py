"""What the provider may be told: limits, slots and latency."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_LIMITS = {
    "openai": ("tokens_per_minute",),
    "azure": ("tokens_per_minute",),
    "anthropic": ("input_tokens_per_minute", "output_tokens_per_minute"),
}
"""Policy → the limits on tokens that it knows; policy none ignores them all."""
_ALL_LIMITS = sorted({name for names in _LIMITS.values() for name in names})


class LatencyConfig(BaseModel):
    """How long a call takes: first token after a lognormal time, then one token per `inter_token_ms`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_token_ms: float = Field(default=100.0, ge=0)
    """Mean time to first token, without prefill."""
    first_token_cv: float = Field(default=0.25, ge=0, le=3)
    """Coefficient of variation of the lognormal; 0 makes it exact."""
    prefill_ms_per_1000_tokens: float = Field(default=0.0, ge=0)
    inter_token_ms: float = Field(default=10.0, ge=0)
    chunk_ms: float = Field(default=0.0, ge=0)
    """Stream chunks are at least this far apart (coalescing tokens); 0 sends every token by itself."""


class FaultSpec(BaseModel):
    """Something that goes wrong for a while: its kind (a file in `faults/`), when, for whom, how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    after_s: float = Field(default=0.0, ge=0)
    """Seconds from the provider's start, its last reset, or the request that adds the fault."""
    seconds: float | None = Field(default=None, gt=0)
    """How long it lasts; None: until it is taken away."""
    tenant: int | None = Field(default=None, ge=0, le=65_535)
    """Marker number of the one tenant it hits; None: everybody."""
    params: dict[str, Any] = Field(default_factory=dict)


class ModelLimits(BaseModel):
    """The limits of one model; what is not said is not limited."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens_per_minute: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)


class ProviderConfig(BaseModel):
    """One provider. Buckets are kept by (API key, model): behind a gateway all tenants share one key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Literal["openai", "anthropic", "azure", "none"] = "openai"
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """Of the policies that count input and output together."""
    input_tokens_per_minute: float | None = Field(default=None, gt=0)
    """Of policy anthropic, as are output tokens."""
    output_tokens_per_minute: float | None = Field(default=None, gt=0)
    requests_per_minute: float | None = Field(default=None, gt=0)
    bucket_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds of allowance the buckets hold. OpenAI's hold 60; short profiles say 2, else nothing binds.
    With policy azure, the length of its windows."""
    slots: int | None = Field(default=None, ge=1)
    """Calls in service at once; None: no bound."""
    overflow: Literal["refuse", "queue"] = "refuse"
    """What happens to a call that finds no slot: 503, or it waits its turn (first come, first served)."""
    max_queue: int | None = Field(default=None, ge=0)
    """With overflow: queue, calls that may wait; None: no bound (a provider that never says no)."""
    retry_after: Literal["seconds", "milliseconds", "date", "none"] = "seconds"
    """What a 429 carries: Retry-After in seconds, with retry-after-ms beside it, as a date, or nothing."""
    limit_headers: bool = True
    """Whether answers tell what is left of the limits; some of OpenAI's and Azure's do not."""
    model_limits: dict[str, ModelLimits] = Field(default_factory=dict)
    """Models with other limits than the rest."""
    models: tuple[str, ...] = ("fake-model",)
    any_model: bool = True
    """Serve any model name; False: 404 for names not in `models`."""
    context_tokens: int | None = Field(default=None, ge=1)
    """Prompt and max_tokens together are at most so long, else 400; None: any length."""
    default_output_tokens: int = Field(default=64, ge=1)
    """Output of a call whose message carries no marker and no max_tokens."""
    latency: LatencyConfig = LatencyConfig()
    seed: int = 1
    count_refused: bool = False
    """Whether a refused call uses up a request all the same, as OpenAI says of its own limits."""
    faults: tuple[FaultSpec, ...] = ()
    max_ledger_entries: int = Field(default=1_000_000, ge=0)
    """Entries kept in memory; later calls are counted (and written to the ledger file), but not listed."""

    @model_validator(mode="after")
    def _limits_are_the_policys(self) -> Self:
        """A limit that the policy does not know would silently hold nobody back."""
        known = _LIMITS.get(self.policy)
        for name in _ALL_LIMITS:
            if known is not None and name not in known and getattr(self, name) is not None:
                raise ValueError(f"{name}: policy {self.policy} has {' and '.join(known)}")
        return self
