"""What durable jobs tell the metrics: filled in by the store and the workers. PURE."""

from __future__ import annotations

import msgspec


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One instant. Counters count from the start of the process."""

    states: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Jobs by state: queued, deferred, running, and those that have ended."""
    waiting: int = 0
    oldest_wait_ns: int = 0
    lease_age_ns: int = 0
    """For how long the longest silent worker has not been heard of."""
    reclaims: int = 0
    retries: int = 0
    """Attempts beyond the first."""
    step_limits: int = 0
    """Runs that their step limit has ended: runs that fail expensively."""
    tool_calls: int = 0
    tool_ns: int = 0
