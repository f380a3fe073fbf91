"""What one tenant may send in a minute, whatever room there is: its requests and its tokens.

Counted when a request is let in, so what has waited can reach the provider closer together. Tokens are
counted as the provider counts them, streamed or not: max_tokens or a quarter of the characters at the start,
and whatever goes beyond as it comes. What was let in and never started is given back.
"""

from __future__ import annotations

from agentload.scheduler.config import TenantConfig
from agentload.scheduler.limits import Bucket
from agentload.scheduler.retry_after import RetryAdvice, VirtualQueue

NS = 1_000_000_000


class Quota:
    """One bucket of one tenant, and the places in it that were promised to refused callers."""

    __slots__ = ("bucket", "name", "per_minute", "promises")

    def __init__(self, name: str, per_minute: float, burst_s: float) -> None:
        self.name = name
        self.per_minute = per_minute
        self.bucket = Bucket(per_minute, burst_s)
        self.promises = VirtualQueue()

    def place_ns(self, advice: RetryAdvice, now_ns: int, amount: float) -> int:
        """When the caller refused now may come: the k-th when the k-th has been let in."""
        ready_ns, interval_ns = self.bucket.ready_ns(amount), round(amount * self.bucket.ns_per_token)
        if not advice.tickets:
            return ready_ns
        return self.promises.take(ready_ns - interval_ns, interval_ns, advice.horizon_ns(now_ns))


class TenantLimit:
    """The quotas of one tenant: all of them are asked, then all are taken."""

    __slots__ = ("requests", "tokens")

    def __init__(self, config: TenantConfig) -> None:
        self.requests = _quota("requests", config.requests_per_minute, config.burst_s)
        self.tokens = _quota("tokens", config.tokens_per_minute, config.burst_s)

    def admits(self, now_ns: int, tokens: int) -> bool:
        """Whether a request of that many tokens may come in now."""
        return not any(quota.bucket.ready_ns(amount) > now_ns for quota, amount in self._asked(tokens))

    def place_ns(self, advice: RetryAdvice, now_ns: int, tokens: int) -> int:
        """When one that may not come in now may: of what it lacks, the latest."""
        return max(
            quota.place_ns(advice, now_ns, amount)
            for quota, amount in self._asked(tokens)
            if quota.bucket.ready_ns(amount) > now_ns
        )

    def take(self, now_ns: int, tokens: int) -> None:
        """It comes in."""
        for quota, amount in self._asked(tokens):
            quota.bucket.take(now_ns, amount)

    def overrun(self, now_ns: int, tokens: int) -> None:
        """It used more tokens than were taken for it."""
        if self.tokens is not None:
            self.tokens.bucket.take(now_ns, tokens)

    def give_back(self, tokens: int) -> None:
        """It left before it was started."""
        for quota, amount in self._asked(tokens):
            quota.bucket.give_back(amount)

    @property
    def quotas(self) -> list[Quota]:
        """Those that there are."""
        return [quota for quota in (self.requests, self.tokens) if quota is not None]

    def _asked(self, tokens: int) -> list[tuple[Quota, int]]:
        asked = [] if self.requests is None else [(self.requests, 1)]
        return asked if self.tokens is None else [*asked, (self.tokens, tokens)]


def _quota(name: str, per_minute: float | None, burst_s: float) -> Quota | None:
    return None if per_minute is None else Quota(name, per_minute, burst_s)


def tenant_limits(tenants: dict[str, TenantConfig]) -> dict[str, TenantLimit]:
    """By tenant; only for those that have a limit."""
    return {name: TenantLimit(config) for name, config in tenants.items() if config.is_limited}
