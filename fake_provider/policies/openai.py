"""OpenAI: continuous token buckets for tokens and requests, charged at admission, nothing given back.

Source: https://platform.openai.com/docs/guides/rate-limits. Whether OpenAI refunds what a call did not use is
not documented; this one does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from fake_provider.budget import Bucket, Headers, openai_cost, rate_limit_headers
from fake_provider.call import CallRequest, Reason, Shortage
from fake_provider.config import ModelLimits, ProviderConfig
from fake_provider.ledger import Caller
from fake_provider.policies import Policy, level


@dataclass(slots=True)
class _Allowance:
    """One caller's buckets; None where there is no limit."""

    requests: Bucket | None
    tokens: Bucket | None


class OpenAI(Policy):
    """TPM and RPM by caller: both must have enough, then both are charged."""

    def __init__(self, config: ProviderConfig, epoch_ns: int = 0) -> None:
        super().__init__(config, epoch_ns)
        self._allowances: dict[Caller, _Allowance] = {}
        self._factor = 1.0

    def cost(self, request: CallRequest) -> int:
        return openai_cost(request.text_chars, request.max_tokens)

    def shortages(self, now_ns: int, caller: Caller, cost: int) -> list[Shortage]:
        allowance = self._allowance(now_ns, caller)
        asked = ((Reason.REQUESTS, allowance.requests, 1), (Reason.TOKENS, allowance.tokens, cost))
        return [
            Shortage(limit, bucket.per_minute, bucket.capacity, bucket.used(), n, wait_ns)
            for limit, bucket, n in asked
            if bucket is not None and (wait_ns := bucket.wait_ns(n, now_ns)) != 0
        ]

    def take(self, now_ns: int, caller: Caller, cost: int) -> None:
        allowance = self._allowance(now_ns, caller)
        if allowance.requests is not None:
            allowance.requests.take(1)
        if allowance.tokens is not None:
            allowance.tokens.take(cost)

    def refused(self, now_ns: int, caller: Caller) -> None:
        requests = self._allowance(now_ns, caller).requests
        if self.config.count_refused and requests is not None:
            # Down to nothing, not into debt: hammering keeps a caller out, it does not bury it.
            requests.take(max(0.0, min(1.0, requests.level)))

    def produced(self, now_ns: int, caller: Caller, tokens: int) -> None:
        """Nothing: max_tokens was charged at admission."""

    def headers(self, now_ns: int, caller: Caller) -> Headers:
        allowance = self._allowance(now_ns, caller)
        for bucket in (allowance.requests, allowance.tokens):
            if bucket is not None:
                bucket.refill(now_ns)
        return rate_limit_headers(allowance.requests, allowance.tokens)

    def scale(self, now_ns: int, factor: float) -> None:
        self._factor = factor
        for caller, allowance in self._allowances.items():
            limit = self._limits_of(caller).tokens_per_minute
            if allowance.tokens is not None and limit is not None:
                allowance.tokens.resize(limit * factor, now_ns)

    def levels(self, now_ns: int) -> list[dict[str, object]]:
        return [
            level(caller, name, bucket, now_ns)
            for caller, allowance in self._allowances.items()
            for name, bucket in (("requests", allowance.requests), ("tokens", allowance.tokens))
            if bucket is not None
        ]

    def _limits_of(self, caller: Caller) -> ProviderConfig | ModelLimits:
        return self.config.model_limits.get(caller[1], self.config)

    def _allowance(self, now_ns: int, caller: Caller) -> _Allowance:
        allowance = self._allowances.get(caller)
        if allowance is None:
            seconds = self.config.bucket_s
            limits = self._limits_of(caller)
            rpm, tpm = limits.requests_per_minute, limits.tokens_per_minute
            allowance = self._allowances[caller] = _Allowance(
                # However short the bucket, one request fits.
                Bucket(rpm, max(seconds, 60 / rpm), now_ns) if rpm is not None else None,
                Bucket(tpm * self._factor, seconds, now_ns) if tpm is not None else None,
            )
        return allowance
