"""What has happened to jobs since the process began. PURE."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """Each only goes up."""

    accepted: int = 0
    begun: int = 0
    """Deliveries."""
    reclaimed: int = 0
    """Leases that were orphaned or lapsed."""
    retried: int = 0
    """Deliveries that failed and are made again."""
    parked: int = 0
    """Times that admission would not have a step now."""
    fenced: int = 0
    """Writes that were too late: another has the job, or it has ended."""
    store_failures: int = 0
    """Batches that could not be saved."""
    overspent: int = 0
    """Jobs that their spend limit ended."""
    tool_calls: int = 0
    tool_ns: int = 0
    """Time that tools took, those that were given up included."""
    completed: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0
