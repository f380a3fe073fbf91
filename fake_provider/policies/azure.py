"""Azure OpenAI: counters that start again at nought with every window, instead of buckets that fill.

Source: https://learn.microsoft.com/azure/ai-services/openai/how-to/quota. A call counts its prompt, estimated
from its characters, and its max_tokens on top; without max_tokens it reserves the model's whole context,
where `context_tokens` says how long that is. Nothing is given back. Tokens are counted in windows of a
minute (`bucket_s`); requests are looked at over 10 s at most. The windows of all callers begin together.
"""

from __future__ import annotations

from dataclasses import dataclass

from fake_provider.budget import EPSILON, NS, Headers, openai_cost
from fake_provider.call import CallRequest, Reason, Shortage
from fake_provider.config import ProviderConfig
from fake_provider.ledger import Caller
from fake_provider.policies import Policy, digest

REQUESTS_WINDOW_S = 10.0


@dataclass(slots=True)
class Window:
    """A counter that begins anew every `length_ns` of the provider's clock."""

    per_minute: float
    length_ns: int
    number: int = 0
    used: float = 0.0

    @property
    def capacity(self) -> float:
        """What one window admits, and so the largest call."""
        return self.per_minute / 60 / NS * self.length_ns

    def pass_to(self, now_ns: int) -> None:
        """Begins anew when a window has ended; a clock that steps back changes nothing."""
        number = now_ns // self.length_ns
        if number > self.number:
            self.number, self.used = number, 0.0

    def wait_ns(self, n: float, now_ns: int) -> int | None:
        """How long until `n` fit: 0 is now, None is never, and else it is the window's end."""
        if n > self.capacity + EPSILON:
            return None
        self.pass_to(now_ns)
        if self.used + n <= self.capacity + EPSILON:
            return 0
        return (self.number + 1) * self.length_ns - now_ns


_Windows = dict[Reason, Window]


class Azure(Policy):
    """TPM and RPM by caller, in fixed windows: around an edge, two windows' worth may come at once."""

    def __init__(self, config: ProviderConfig, epoch_ns: int = 0) -> None:
        super().__init__(config, epoch_ns)
        self._allowances: dict[Caller, _Windows] = {}
        self._factor = 1.0

    def cost(self, request: CallRequest) -> int:
        prompt = openai_cost(request.text_chars, None)
        if request.max_tokens is None:
            return max(prompt, self.config.context_tokens or 0)
        return prompt + request.max_tokens

    def shortages(self, now_ns: int, caller: Caller, cost: int) -> list[Shortage]:
        asked = {Reason.REQUESTS: 1, Reason.TOKENS: cost}
        return [
            Shortage(limit, window.per_minute, window.capacity, window.used, asked[limit], wait_ns)
            for limit, window in self._allowance(caller).items()
            if (wait_ns := window.wait_ns(asked[limit], now_ns)) != 0
        ]

    def take(self, now_ns: int, caller: Caller, cost: int) -> None:
        for limit, window in self._allowance(caller).items():
            window.pass_to(now_ns)
            window.used += 1 if limit is Reason.REQUESTS else cost

    def refused(self, now_ns: int, caller: Caller) -> None:
        requests = self._allowance(caller).get(Reason.REQUESTS)
        if self.config.count_refused and requests is not None:
            requests.pass_to(now_ns)
            requests.used = min(requests.capacity, requests.used + 1)

    def produced(self, now_ns: int, caller: Caller, tokens: int) -> None:
        """Nothing: max_tokens was counted at admission."""

    def headers(self, now_ns: int, caller: Caller) -> Headers:
        """Azure tells what is left, and not when there is more."""
        fields: Headers = []
        for limit, window in self._allowance(caller).items():
            window.pass_to(now_ns)
            left = max(0.0, window.capacity - window.used + EPSILON)
            fields.append((b"x-ratelimit-remaining-" + limit.encode(), b"%d" % left))
        return fields

    def scale(self, now_ns: int, factor: float) -> None:  # noqa: ARG002
        self._factor = factor
        limits = self._limits()
        for allowance in self._allowances.values():
            for limit, window in allowance.items():
                window.per_minute = limits[limit]

    def levels(self, now_ns: int) -> list[dict[str, object]]:
        return [
            self._level(caller, limit, window, now_ns)
            for caller, allowance in self._allowances.items()
            for limit, window in allowance.items()
        ]

    def _level(self, caller: Caller, limit: Reason, window: Window, now_ns: int) -> dict[str, object]:
        window.pass_to(now_ns)
        return {
            "key_digest": digest(caller),
            "model": caller[1],
            "limit": limit,
            "per_minute": window.per_minute,
            "capacity": window.capacity,
            "level": window.capacity - window.used,
        }

    def _limits(self) -> dict[Reason, float]:
        rpm, tpm = self.config.requests_per_minute, self.config.tokens_per_minute
        found = {Reason.REQUESTS: rpm, Reason.TOKENS: None if tpm is None else tpm * self._factor}
        return {limit: rate for limit, rate in found.items() if rate is not None}

    def _allowance(self, caller: Caller) -> _Windows:
        allowance = self._allowances.get(caller)
        if allowance is None:
            allowance = self._allowances[caller] = {
                limit: Window(rate, self._length_ns(limit, rate)) for limit, rate in self._limits().items()
            }
        return allowance

    def _length_ns(self, limit: Reason, rate: float) -> int:
        seconds = self.config.bucket_s
        if limit is Reason.REQUESTS:
            # However short the window, one request fits.
            seconds = max(min(seconds, REQUESTS_WINDOW_S), 60 / rate)
        return round(seconds * NS)
