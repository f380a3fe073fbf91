"""Anthropic: continuous buckets for requests (RPM), input tokens (ITPM) and output tokens (OTPM).

Source: https://platform.claude.com/docs/en/api/rate-limits. Input is estimated at admission and then
adjusted; here the estimate is exact, so there is nothing to adjust. Output is "evaluated in real time as
output tokens are produced", and max_tokens does not count: a call passes while the bucket holds a token, and
what is produced then drives it into debt. That of a plain answer counts as it is produced, too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from fake_provider.budget import EPSILON, NS, Bucket, Headers
from fake_provider.call import CallRequest, Reason, Shortage
from fake_provider.config import ProviderConfig
from fake_provider.ledger import Caller
from fake_provider.policies import Policy, level

_GRAIN = 1000
"""Tokens that remain are told to the nearest thousand."""
_NAMES = {
    Reason.REQUESTS: b"requests",
    Reason.INPUT_TOKENS: b"input-tokens",
    Reason.OUTPUT_TOKENS: b"output-tokens",
}
_Buckets = dict[Reason, Bucket]


class Anthropic(Policy):
    """RPM, ITPM and OTPM by caller: all must have enough; requests and input are charged at admission."""

    charges_output = True

    def __init__(self, config: ProviderConfig, epoch_ns: int = 0) -> None:
        super().__init__(config, epoch_ns)
        self._allowances: dict[Caller, _Buckets] = {}
        self._factor = 1.0

    def cost(self, request: CallRequest) -> int:
        return request.input_tokens

    def shortages(self, now_ns: int, caller: Caller, cost: int) -> list[Shortage]:
        asked = {Reason.REQUESTS: 1, Reason.INPUT_TOKENS: cost, Reason.OUTPUT_TOKENS: 1}
        return [
            Shortage(limit, bucket.per_minute, bucket.capacity, bucket.used(), asked[limit], wait_ns)
            for limit, bucket in self._allowance(now_ns, caller).items()
            if (wait_ns := bucket.wait_ns(asked[limit], now_ns)) != 0
        ]

    def take(self, now_ns: int, caller: Caller, cost: int) -> None:
        allowance = self._allowance(now_ns, caller)
        for limit, n in ((Reason.REQUESTS, 1), (Reason.INPUT_TOKENS, cost)):
            if limit in allowance:
                allowance[limit].take(n)

    def refused(self, now_ns: int, caller: Caller) -> None:
        requests = self._allowance(now_ns, caller).get(Reason.REQUESTS)
        if self.config.count_refused and requests is not None:
            requests.take(max(0.0, min(1.0, requests.level)))

    def produced(self, now_ns: int, caller: Caller, tokens: int) -> None:
        output = self._allowance(now_ns, caller).get(Reason.OUTPUT_TOKENS)
        if output is not None:
            output.refill(now_ns)
            output.take(tokens)

    def headers(self, now_ns: int, caller: Caller) -> Headers:
        """`anthropic-ratelimit-*`; the `tokens` fields are input and output together."""
        allowance = self._allowance(now_ns, caller)
        for bucket in allowance.values():
            bucket.refill(now_ns)
        fields = [
            field
            for limit, bucket in allowance.items()
            for field in self._fields(
                _NAMES[limit], [bucket], now_ns, 1 if limit is Reason.REQUESTS else _GRAIN
            )
        ]
        tokens = [bucket for limit, bucket in allowance.items() if limit is not Reason.REQUESTS]
        return fields + self._fields(b"tokens", tokens, now_ns, _GRAIN) if tokens else fields

    def scale(self, now_ns: int, factor: float) -> None:
        self._factor = factor
        limits = self._limits()
        for allowance in self._allowances.values():
            for limit, bucket in allowance.items():
                bucket.resize(limits[limit], now_ns)

    def levels(self, now_ns: int) -> list[dict[str, object]]:
        return [
            level(caller, limit, bucket, now_ns)
            for caller, allowance in self._allowances.items()
            for limit, bucket in allowance.items()
        ]

    def _fields(self, name: bytes, buckets: list[Bucket], now_ns: int, grain: int) -> Headers:
        limit = sum([bucket.per_minute for bucket in buckets])
        left = sum([_remaining(bucket.level, grain) for bucket in buckets])
        full_ns = self._epoch_ns + now_ns + max([bucket.full_in_ns() for bucket in buckets])
        return [
            (b"anthropic-ratelimit-%s-limit" % name, b"%d" % limit),
            (b"anthropic-ratelimit-%s-remaining" % name, b"%d" % left),
            (b"anthropic-ratelimit-%s-reset" % name, rfc3339(full_ns)),
        ]

    def _limits(self) -> dict[Reason, float]:
        """The configured limits, as a fault may have scaled them; whoever has none is not in it."""
        config, factor = self.config, self._factor
        found = {
            Reason.REQUESTS: config.requests_per_minute,
            Reason.INPUT_TOKENS: _times(config.input_tokens_per_minute, factor),
            Reason.OUTPUT_TOKENS: _times(config.output_tokens_per_minute, factor),
        }
        return {limit: rate for limit, rate in found.items() if rate is not None}

    def _allowance(self, now_ns: int, caller: Caller) -> _Buckets:
        allowance = self._allowances.get(caller)
        if allowance is None:
            # However short the bucket, one request (and one token) fits.
            allowance = self._allowances[caller] = {
                limit: Bucket(rate, max(self.config.bucket_s, 60 / rate), now_ns)
                for limit, rate in self._limits().items()
            }
        return allowance


def rfc3339(unix_ns: int) -> bytes:
    """An instant to the second, rounded up: `2025-08-21T12:40:59Z`."""
    return _instant(-(-unix_ns // NS))


@lru_cache(maxsize=256)
def _instant(unix_s: int) -> bytes:
    # Many answers name the same few seconds, and writing one costs as much as a whole bucket.
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def _times(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate * factor


def _remaining(level: float, grain: int) -> int:
    """What is left, to the nearest `grain`; a debt is nothing."""
    whole = max(0.0, level + EPSILON)
    return int(whole) if grain == 1 else round(whole / grain) * grain
