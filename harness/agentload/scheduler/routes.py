"""Which of the provider's limits a request falls under, by its model; where it goes when they are used up."""

from __future__ import annotations

from typing import NamedTuple

from agentload.scheduler.config import UpstreamLimits
from agentload.scheduler.limits import ProviderLimits
from agentload.scheduler.tenants import Ticket


class Fallback(NamedTuple):
    """Another model, for requests that would have to wait too long."""

    model: str
    limits: ProviderLimits
    after_ns: int
    """A wait of so long in all is too long."""


class Route:
    """One model's limits, and what waits for them."""

    __slots__ = ("calls", "fallback", "largest_call", "limits", "name", "tokens")

    def __init__(self, name: str, limits: ProviderLimits) -> None:
        """`name`: the model's; empty for all that have no limits of their own."""
        self.name = name
        self.limits = limits
        self.fallback: Fallback | None = None
        self.largest_call = limits.largest_call
        """Tokens of the largest call that is ever served."""
        self.calls = 0
        """Waiting."""
        self.tokens = 0

    def fall_back(self, fallback: Fallback) -> None:
        """Go there when its own limits are used up."""
        self.fallback = fallback
        self.largest_call = max(self.largest_call, fallback.limits.largest_call)

    def wait_ns(self, now_ns: int, tokens: int) -> int:
        """How long a call of so many tokens will wait behind those that wait already."""
        ready_ns = self.limits.drained_ns(self.calls + 1, self.tokens + tokens)
        fallback = self.fallback
        if fallback is not None:
            beside_ns = max(fallback.limits.ready_ns(tokens), now_ns + fallback.after_ns)
            ready_ns = min(ready_ns, beside_ns)
        return max(0, ready_ns - now_ns)

    @property
    def paused_until_ns(self) -> int:
        """Until when nothing at all goes: both its own limits and its fallback's are paused."""
        own_ns = self.limits.paused_until_ns
        return own_ns if self.fallback is None else min(own_ns, self.fallback.limits.paused_until_ns)


class Routes:
    """By model. Where no model has limits of its own there is one route for all."""

    def __init__(self, config: UpstreamLimits, widest: int) -> None:
        self.default = Route("", ProviderLimits(config, widest))
        self._by_model = {
            name: Route(name, ProviderLimits(config.of(name), widest)) for name in config.models
        }
        self.several = bool(self._by_model)
        """Whether any model has limits of its own."""
        for name, one in config.models.items():
            if one.fallback is not None:
                limits = self.of(one.fallback).limits
                after_ns = round(one.fallback_after_s * 1e9)
                self._by_model[name].fall_back(Fallback(one.fallback, limits, after_ns))

    def of(self, model: str) -> Route:
        """What a request for that model goes by."""
        return self._by_model.get(model, self.default) if self.several else self.default

    @property
    def all(self) -> dict[str, Route]:
        """By model; the rest under the empty name."""
        return {"": self.default, **self._by_model}

    def joined(self, ticket: Ticket) -> None:
        """It waits."""
        ticket.route.calls += 1
        ticket.route.tokens += ticket.provider_tokens

    def left(self, ticket: Ticket) -> None:
        """It does not any more."""
        ticket.route.calls -= 1
        ticket.route.tokens -= ticket.provider_tokens
