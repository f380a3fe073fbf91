"""Why did it wait: what a slow or refused request owes its wait to, in one word."""

from __future__ import annotations

from enum import StrEnum


class WaitCause(StrEnum):
    """The word in `Server-Timing: queue;dur=…;desc="…"`, in the log, and in the metrics."""

    RETRY_STORM = "retry_storm"
    """At least half of what waits has been here before."""
    TENANT_OVER_QUOTA = "tenant_over_quota"
    """Its own tenant has more waiting and running than its share, or is at a limit of its own."""
    CLASS_BORROWED = "class_borrowed"
    """Its class has not got its share of the pool, because another class still uses what it borrowed."""
    PROVIDER_LIMIT = "provider_limit"
    """The provider's tokens or requests per minute are used up, or it asked for a pause: slots stand free."""
    MODEL_SLOW = "model_slow"
    """Calls take longer than calls of their size normally do, so places come free late."""
    CAPACITY = "capacity"
    """None of these: more work has come than there are places for."""
