"""The `jobs:` section of the configuration: the gateway's durable jobs (see `agentload.gateway.jobs`)."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentload.scheduler.addresses import base_url

MEMORY = "memory"
SQLITE = "sqlite:"


class JobsSettings(BaseModel):
    """Durable jobs; off when the section is absent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = MEMORY
    """`sqlite:PATH`, or `memory`: nothing survives the process (experiments only)."""
    lease_s: float = Field(default=30.0, gt=0, le=3_600)
    """A step whose holder is not heard of for so long is taken from it."""
    heartbeat_s: float | None = Field(default=None, gt=0)
    """How often leases are renewed. None: a third of `lease_s`."""
    max_attempts: int = Field(default=6, ge=1)
    """Failed deliveries of a job, at most; a caller may ask for fewer."""
    max_queued: int = Field(default=10_000, ge=1)
    """Jobs of one class that have not ended, at most; a class that rejects when full stops at its own
    `max_queue`, one that defers goes on up to here."""
    tenant_max_queued: int | None = Field(default=None, ge=1)
    """Jobs of one tenant and class that have not ended, at most. None: half of `max_queued`."""
    max_bytes: int = Field(default=256 * 2**20, ge=1)
    """Bytes of jobs that have not ended, at most."""
    retention_s: float = Field(default=3_600.0, gt=0)
    """How long an ended job can be asked for (and its idempotency key is remembered)."""
    max_kept: int = Field(default=10_000, ge=0)
    """Ended jobs kept, at most; the oldest go first."""
    step_limit: int = Field(default=100, ge=1)
    """Steps of a job, at most."""
    deadline_s: float = Field(default=3_600.0, gt=0)
    """Of a job that names no deadline."""
    step_timeout_s: float = Field(default=600.0, gt=0)
    """Longest delivery of a chat step."""
    tool_timeout_s: float = Field(default=120.0, gt=0)
    """Longest call of a tool that names no timeout of its own."""
    tool_connect_s: float = Field(default=5.0, gt=0)
    tool_slots: int = Field(default=32, ge=1)
    """Tool calls under way, at most."""
    tool_tenant_slots: int | None = Field(default=None, ge=1)
    """Of one tenant. None: half of `tool_slots`."""
    tool_url: str | None = None
    """Tools are called at URL/NAME. None: `/_tool` at the provider's address."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Tokens a run may be charged in all (retries × steps); a caller may ask for fewer. None: no bound."""
    max_output_bytes: int = Field(default=64 * 2**10, ge=1)
    """Longest output of a step that is kept; a longer one is replaced by a note that says so."""
    ahead: int = Field(default=2, ge=1)
    """Steps of one tenant and class that wait in admission at once; the others wait here."""

    @field_validator("store")
    @classmethod
    def _known_store(cls, store: str) -> str:
        if store != MEMORY and not (store.startswith(SQLITE) and len(store) > len(SQLITE)):
            raise ValueError(f"must be 'memory' or 'sqlite:PATH', got {store!r}")
        return store

    @field_validator("tool_url")
    @classmethod
    def _called_there(cls, url: str | None) -> str | None:
        return None if url is None else base_url(url, "http://127.0.0.1:9000/_tool")

    @model_validator(mode="after")
    def _beats_in_time(self) -> Self:
        if self.heartbeat_s is not None and self.heartbeat_s >= self.lease_s:
            raise ValueError("heartbeat_s must be less than lease_s, else every lease lapses")
        return self

    @property
    def beat_s(self) -> float:
        """How often leases are renewed."""
        return self.lease_s / 3 if self.heartbeat_s is None else self.heartbeat_s

    @property
    def tenant_most(self) -> int:
        """Jobs of one tenant and class that have not ended, at most."""
        return max(1, self.max_queued // 2) if self.tenant_max_queued is None else self.tenant_max_queued

    @property
    def tool_tenant_most(self) -> int:
        """Tool calls of one tenant under way, at most."""
        return max(1, self.tool_slots // 2) if self.tool_tenant_slots is None else self.tool_tenant_slots
