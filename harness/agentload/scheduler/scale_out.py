"""More slots, or fewer callers? It helps to scale out where a pool refuses what the provider would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agentload.scheduler.limits import NS, ProviderLimits
from agentload.scheduler.reasons import Reason

if TYPE_CHECKING:
    from agentload.scheduler.classes import ServiceClass

BOUNDS = frozenset(
    {
        Reason.CLASS_QUEUE_FULL,
        Reason.QUEUE_UNITS_FULL,
        Reason.QUEUE_BYTES_FULL,
        Reason.TENANT_QUEUE_FULL,
        Reason.PREDICTED_WAIT,
        Reason.EVICTED,
    }
)
"""Refusals for want of capacity. A tenant at its own cap, or the provider's pause, is none of them."""

LASTS_NS = 60 * NS
"""The advice stands for so long after the last refusal that it rests on: longer than a scrape, so that an
alert with a duration of its own does not flap."""
ENOUGH = 0.5
"""Part of the provider's bucket that has to be there. It is soon empty when tokens are what binds."""


class ScaleOut:
    """One pool's advice. Without limits configured for the provider, all that says no is its pauses."""

    def __init__(self) -> None:
        self._until_ns = 0
        self._because = ""

    def refused(self, now_ns: int, cls: ServiceClass, limits: ProviderLimits) -> None:
        """A request of the class was refused for want of capacity: of whose?"""
        scarce = _scarce(cls)
        if scarce is not None and _has_headroom(now_ns, limits):
            self._until_ns = now_ns + LASTS_NS
            self._because = (
                f"class '{cls.name}' was refused for want of {scarce} while the provider would take more"
            )

    def advice(self, now_ns: int) -> str | None:
        """Why more capacity would help; None when it would not, or nobody is refused."""
        return self._because if now_ns < self._until_ns else None


def _scarce(cls: ServiceClass) -> str | None:
    """What the pool has too little of; None when only the class's own limit holds it back."""
    pool, share = cls.pool, cls.share
    if pool.slots_free <= pool.kept_slots(share):
        return "slots"
    return "units" if pool.free_for(share) < cls.work.mean else None


def _has_headroom(now_ns: int, limits: ProviderLimits) -> bool:
    """Whether half a bucket could go at once."""
    half = 0 if math.isinf(limits.largest_call) else int(limits.largest_call * ENOUGH)
    return limits.ready_ns(half) <= now_ns
