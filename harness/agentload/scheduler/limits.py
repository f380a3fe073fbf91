"""The provider's limits, kept on our side so that it never has to refuse us.

A continuous token bucket, held as one integer: the instant at which it would be full again (the generic cell
rate algorithm, ITU-T I.371). Nothing is refilled in steps, no fraction is lost, and the instant at which a
call may go is exact, so that a shell that wakes then never finds that it is a nanosecond too early.
"""

from __future__ import annotations

from math import ceil, inf

from agentload.scheduler.config import UpstreamLimits
from agentload.scheduler.congestion import UNLIMITED, CongestionWindow

NS = 1_000_000_000


class Bucket:
    """Holds `capacity` tokens, refilled evenly at `per_minute`. It may go into debt."""

    __slots__ = ("_capacity_ns", "_full_ns", "ns_per_token")

    def __init__(self, per_minute: float, bucket_s: float) -> None:
        self.ns_per_token = 60 * NS / per_minute
        self._capacity_ns = round(bucket_s * NS)
        self._full_ns = 0
        """When it would be full again; in the past when it is full."""

    def ready_ns(self, tokens: float) -> int:
        """The instant from which `tokens` may be taken; in the past when they may be taken at once.

        More than the bucket ever holds waits for a full bucket instead of for ever.
        """
        lacking_ns = ceil(tokens * self.ns_per_token) - self._capacity_ns
        return self._full_ns + lacking_ns if lacking_ns < 0 else self._full_ns

    def drained_ns(self, tokens: float) -> int:
        """The instant at which so many tokens, taken one by one, would all have been granted."""
        return self._full_ns + ceil(tokens * self.ns_per_token) - self._capacity_ns

    def take(self, now_ns: int, tokens: float) -> None:
        """Take them, ready or not: what is not there becomes debt."""
        from_ns = self._full_ns if self._full_ns > now_ns else now_ns
        self._full_ns = from_ns + ceil(tokens * self.ns_per_token)

    def give_back(self, tokens: float) -> None:
        """What was taken will not be used after all."""
        self._full_ns -= ceil(tokens * self.ns_per_token)

    def hold_back(self, until_ns: int, tokens: float) -> None:
        """At `until_ns` there will be `tokens` and no more: whatever else was thought to be there is not."""
        full_ns = until_ns + self._capacity_ns - ceil(tokens * self.ns_per_token)
        self._full_ns = max(self._full_ns, full_ns)

    @property
    def full_ns(self) -> int:
        """When it is full again, or was."""
        return self._full_ns

    def level(self, now_ns: int) -> float:
        """Tokens in the bucket; negative in debt."""
        return (self._capacity_ns - max(0, self._full_ns - now_ns)) / self.ns_per_token


class ProviderLimits:
    """Tokens and requests per minute, the calls in flight, and the pauses that the provider asks for.

    One set of buckets for all models: models have their own at the provider, so this errs on the safe side.
    """

    def __init__(self, config: UpstreamLimits, widest: int) -> None:
        """`widest`: calls that all pools together can have in flight."""
        keep = 1 - config.margin
        tokens, requests = config.tokens_per_minute, config.requests_per_minute
        self.tokens = Bucket(tokens * keep, config.bucket_s) if tokens else None
        self.requests = Bucket(requests * keep, config.bucket_s) if requests else None
        self.largest_call = tokens / 60 * config.bucket_s if tokens else inf
        """Tokens of a full bucket at the provider: it never serves a larger call."""
        self.limited = self.tokens is not None or self.requests is not None
        self.paused_until_ns = 0
        self.window = CongestionWindow(widest)

    def ready_ns(self, tokens: int) -> int:
        """The instant from which a call of that many tokens may go; in the past when it may go at once."""
        ready_ns = self.paused_until_ns
        if self.tokens is not None and (by_tokens_ns := self.tokens.ready_ns(tokens)) > ready_ns:
            ready_ns = by_tokens_ns
        if self.requests is not None and (by_requests_ns := self.requests.ready_ns(1)) > ready_ns:
            ready_ns = by_requests_ns
        return ready_ns

    def back_ns(self, call_ns: float) -> int:
        """The instant from which it is as if every call could go at once, as far as pauses and the ramps
        after them are concerned; in the past when nothing is held up. `call_ns`: how long a call takes."""
        if self.window.limit == UNLIMITED:
            return self.paused_until_ns
        return self.paused_until_ns + self.window.lag_ns(call_ns)

    def take(self, now_ns: int, tokens: int) -> None:
        """One call goes, with all that the provider charges for it when it arrives."""
        if self.tokens is not None:
            self.tokens.take(now_ns, tokens)
        if self.requests is not None:
            self.requests.take(now_ns, 1)

    def overrun(self, now_ns: int, tokens: int) -> None:
        """Output beyond what was charged at the start. There is no opposite of this.

        The provider charges max(max_tokens, characters / 4) when a call arrives and gives nothing back when
        it turns out shorter, or fails. A bucket that refunded would offer more than the provider will take;
        what fairness owes the tenant is settled on the fairness clock instead.
        """
        if self.tokens is not None:
            self.tokens.take(now_ns, tokens)

    def refused(
        self, now_ns: int, sent_ns: int, tokens: int, retry_after_ns: int | None, *, by_rate: bool
    ) -> None:
        """The provider refused a call of that many tokens and wants nothing for `retry_after_ns` (None: it
        does not say). `by_rate`: because of its tokens or requests per minute (429).

        Its bucket held less than we thought then, so what we thought is given up: there will be enough for
        this call, and from there on the usual rate.
        """
        named = retry_after_ns is not None and retry_after_ns > 0
        pause_ns = self.window.refused(now_ns, sent_ns, named=named)
        until_ns = now_ns + (retry_after_ns if named and retry_after_ns else pause_ns)
        self.paused_until_ns = max(self.paused_until_ns, until_ns)
        if by_rate and self.tokens is not None:
            self.tokens.hold_back(until_ns, tokens)
        if by_rate and self.requests is not None:
            self.requests.hold_back(until_ns, 1)

    def interval_ns(self, tokens: float) -> float:
        """Time between calls of that size at the full rate; 0 when nothing is limited."""
        by_tokens = tokens * self.tokens.ns_per_token if self.tokens is not None else 0.0
        by_requests = self.requests.ns_per_token if self.requests is not None else 0.0
        return max(by_tokens, by_requests)

    def drained_ns(self, calls: float, tokens: float) -> int:
        """The instant at which so many calls with so many tokens in all would have been let through."""
        drained_ns = self.paused_until_ns
        if self.tokens is not None and (by_tokens_ns := self.tokens.drained_ns(tokens)) > drained_ns:
            drained_ns = by_tokens_ns
        if self.requests is not None and (by_requests_ns := self.requests.drained_ns(calls)) > drained_ns:
            drained_ns = by_requests_ns
        return drained_ns
