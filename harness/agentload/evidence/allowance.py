"""When the provider's limits would have let the next call through, worked out again from its ledger.

A gateway that waits because the provider would refuse wastes nothing; one that waits beyond that does. The
ledger holds every call with what it was charged, so the provider's own buckets can be replayed exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentload.evidence.intervals import Interval, clip, merge, subtract
from agentload.model import CallEnding, LedgerEntry, Run
from agentload.promises import Truth
from fake_provider.budget import Bucket
from fake_provider.config import ProviderConfig

_TURNED_AWAY = frozenset({CallEnding.THROTTLED, CallEnding.FAULTED, CallEnding.INVALID})


def admitted(ledger: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """The calls that passed every limit, and so were charged, in order of arrival."""
    taken = [call for call in ledger if call.ending not in _TURNED_AWAY]
    taken.sort(key=lambda call: call.arrived_ns)
    return taken


def permitted(
    ledger: Sequence[LedgerEntry], provider: ProviderConfig, window: Interval, margin: float = 0.0
) -> list[Interval]:
    """When, within a window, the next call that did come could have come already.

    Between two calls that is the time from the instant at which the buckets held what the second one costs;
    after the last one, what that cost. The times for which the provider had asked its caller to stay away
    are left out. `margin` is the part of the allowance (0..1) that a gateway may keep back: the buckets are
    replayed that much smaller and slower.
    """
    allowance = _Allowance(provider, margin)
    calls = admitted(ledger)
    free: list[Interval] = []
    since_ns = 0
    for call in calls:
        free.append((allowance.ready_ns(since_ns, call), call.arrived_ns))
        allowance.take(call)
        since_ns = call.arrived_ns
    free.append((allowance.ready_ns(since_ns, calls[-1]) if calls else 0, max(since_ns, window[1])))
    return subtract(merge(clip(free, window)), told_to_wait(ledger))


def kept_to(run: Run) -> ProviderConfig:
    """The provider, with the lower limits that the gateway was told to keep, where it was."""
    provider, told = run.profile.provider, run.profile.gateway.upstream
    if not run.knows(Truth.UPSTREAM) or provider.policy == "none":
        return provider
    pairs = {
        "tokens_per_minute": (provider.tokens_per_minute, told.tokens_per_minute),
        "requests_per_minute": (provider.requests_per_minute, told.requests_per_minute),
    }
    lower = {
        name: own
        for name, (limit, own) in pairs.items()
        if own is not None and (limit is None or own < limit)
    }
    bucket_s = min(provider.bucket_s, told.bucket_s) if lower else provider.bucket_s
    return provider.model_copy(update={**lower, "bucket_s": bucket_s})


def replayable(provider: ProviderConfig) -> bool:
    """Whether `permitted` knows all that the provider goes by: buckets, charged as calls come.

    It does not know when each token of an answer went out, nor where a fixed window began.
    """
    return provider.output_tokens_per_minute is None and provider.policy != "azure"


def told_to_wait(ledger: Iterable[LedgerEntry]) -> list[Interval]:
    """When the provider wanted no calls: from each refusal to the instant that it named."""
    return merge(
        (call.ended_ns or call.arrived_ns, call.not_before_ns)
        for call in ledger
        if call.not_before_ns is not None
    )


class _Allowance:
    """The provider's buckets, one pair for each model, as `fake_provider.policies.openai` keeps them."""

    def __init__(self, provider: ProviderConfig, margin: float) -> None:
        self._provider = provider
        self._keep = 1 - margin
        self._buckets: dict[str, list[tuple[Bucket, bool]]] = {}

    def ready_ns(self, since_ns: int, call: LedgerEntry) -> int:
        """The earliest instant from `since_ns` on at which the call could have been admitted.

        A call larger than the bucket with its margin needs a full one.
        """
        waits = [0]
        for bucket, by_tokens in self._of(call.model):
            cost = min(_cost(call, by_tokens), bucket.capacity)
            waits.append(bucket.wait_ns(cost, since_ns) or 0)
        return since_ns + max(waits)

    def take(self, call: LedgerEntry) -> None:
        """The call was admitted."""
        for bucket, by_tokens in self._of(call.model):
            bucket.refill(call.arrived_ns)
            bucket.take(_cost(call, by_tokens))

    def _of(self, model: str) -> list[tuple[Bucket, bool]]:
        """The model's buckets, each with whether it counts tokens (else requests)."""
        if model not in self._buckets:
            provider = self._provider
            special = provider.model_limits.get(model) if provider.policy == "openai" else None
            tokens = provider.tokens_per_minute or provider.input_tokens_per_minute
            requests = provider.requests_per_minute
            if special is not None:
                tokens, requests = special.tokens_per_minute, special.requests_per_minute
            seconds, keep = provider.bucket_s, self._keep
            made: list[tuple[Bucket, bool]] = []
            if tokens is not None:
                made.append((Bucket(tokens * keep, seconds, 0), True))
            if requests is not None:
                made.append((Bucket(requests * keep, max(seconds, 60 / requests), 0), False))
            self._buckets[model] = made
        return self._buckets[model]


def _cost(call: LedgerEntry, by_tokens: bool) -> float:
    return float(call.charged_tokens) if by_tokens else 1.0
