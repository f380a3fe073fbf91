"""What the next request of a class waits for, at one instant: which of all constraints binds.

Worked out when somebody asks, so that dispatching pays nothing for it. (Why a request waited as long as it
did is another question: see `diagnosis`.)
"""

from __future__ import annotations

from enum import StrEnum

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import EstimationConfig
from agentload.scheduler.limits import ProviderLimits
from agentload.scheduler.tenants import Ticket


class Binding(StrEnum):
    """Constraints, one of which holds the head of a queue."""

    TENANT_CAP = "tenant_cap"
    """Every tenant with something waiting has all that it may have in flight."""
    SLOTS = "slots"
    """No slot is free, or those that are free are kept for other classes."""
    TOKENS = "tokens"
    """Work units of the pool, which it needs most of for its tokens."""
    TOOL_CALLS = "tool_calls"
    """Work units, most of them for the tool calls that it declares."""
    TOOL_SECONDS = "tool_seconds"
    """Work units, most of them for the tool time that it declares."""
    PROVIDER_PAUSE = "provider_pause"
    """The provider has asked for a pause."""
    PROVIDER_TOKENS = "provider_tokens"
    """The provider's tokens per minute."""
    PROVIDER_REQUESTS = "provider_requests"
    """The provider's requests per minute."""


def binding(
    now_ns: int, cls: ServiceClass, limits: ProviderLimits, coefficients: EstimationConfig
) -> Binding | None:
    """What the class's next request waits for; None when nothing waits, or nothing keeps it waiting."""
    if not cls.queue.waiting:
        return None
    head = cls.queue.head()
    if head is None:
        return Binding.TENANT_CAP
    room = cls.pool.room(cls.share) if cls.pool.slots_free else -1
    if room < 0:
        return Binding.SLOTS
    if head.width > room:
        return _largest(now_ns, head, coefficients)
    return _provider(now_ns, head, limits)


def _largest(now_ns: int, head: Ticket, coefficients: EstimationConfig) -> Binding:
    units = head.estimate(now_ns).units_by_dimension(coefficients)
    return Binding(max(units, key=lambda name: units[name]))


def _provider(now_ns: int, head: Ticket, limits: ProviderLimits) -> Binding | None:
    if limits.paused_until_ns > now_ns:
        return Binding.PROVIDER_PAUSE
    if limits.tokens is not None and limits.tokens.ready_ns(head.provider_tokens) > now_ns:
        return Binding.PROVIDER_TOKENS
    if limits.requests is not None and limits.requests.ready_ns(1) > now_ns:
        return Binding.PROVIDER_REQUESTS
    return None
