"""What the gateway itself may be told, beside the scheduler's configuration: timeouts and bounds. PURE."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class UpstreamRetries(BaseModel):
    """When a call that failed is made again, before its client has been sent anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: float = Field(default=0.1, ge=0, le=1)
    """Retries per call that is made for the first time, over all requests; 0: never."""
    burst: float = Field(default=3.0, ge=1)
    """Retries at once, at most: what the budget saves up while nothing fails."""
    max_attempts: int = Field(default=2, ge=1)
    """Calls for one request, at most, the first included."""


class GatewaySettings(BaseModel):
    """The `server:` section of the gateway's configuration file; everything has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    connect_s: float = Field(default=5.0, gt=0)
    """Longest wait for a connection to the provider."""
    first_byte_s: float = Field(default=60.0, gt=0)
    """Longest wait for the first byte of an answer to pass on."""
    idle_s: float = Field(default=30.0, gt=0)
    """Longest silence inside a stream that has begun (the provider's, or a client's that does not read)."""
    total_s: float = Field(default=600.0, gt=0)
    """Longest upstream call, whatever the caller's deadline."""
    keepalive_s: float = Field(default=4.0, gt=0)
    """How long an idle connection to the provider is kept: less than the provider does, else a call meets a
    closing one and fails. (uvicorn closes after 5 s, the large providers after a minute or more.)"""
    linger_s: float = Field(default=0.25, gt=0)
    """How long the provider may take to close a stream after its terminal event."""
    answer_margin_s: float = Field(default=0.02, ge=0)
    """Kept back from a caller's deadline, so that our 504 arrives before the caller's own timeout."""
    max_body_bytes: int = Field(default=8 * 2**20, ge=1)
    """Longest request body; longer ones are answered 413 without being read to the end."""
    max_answer_bytes: int = Field(default=32 * 2**20, ge=1)
    """Longest plain answer held in memory (streams are passed through and have no bound)."""
    upstream_retries: UpstreamRetries = UpstreamRetries()
    drain_s: float = Field(default=10.0, ge=0)
    """After SIGTERM, how long calls in flight may take to finish."""
    readiness_window_s: float = Field(default=10.0, gt=0)
    """/readyz answers 503 when every upstream call of so many seconds has failed."""
    request_usage: bool = True
    """Ask the provider for a usage block in streams that do not (its event is not passed on)."""
    slow_wait_s: float = Field(default=1.0, ge=0)
    """Requests that waited longer are slow: they are told and logged why (see `WaitCause`)."""
    tenant_labels: int = Field(default=50, ge=0)
    """Tenants with a label of their own in /metrics, at most; the others count as `other`."""
