"""Retries as a share of first attempts: what keeps a client from making an outage worse.

Finagle's RetryBudget, Envoy's retry_budget and gRPC's retryThrottling (gRFC A6) are of this kind; ten per
cent is the SRE book's advice (Beyer et al. 2016, chapter 21, "Handling Overload").
"""

from __future__ import annotations

_RETRY = 1_000_000
"""One retry, in the units that the bucket counts: whole numbers, so that ten tenths are one."""


class RetryBudget:
    """A token bucket that knows no time: first attempts fill it, retries empty it.

    It begins full and holds what `BANKED` first attempts earn (at least one retry), so over any stretch of
    work retries ≤ share · first attempts + that much. Every load worker has one of its own.
    """

    BANKED = 100

    def __init__(self, share: float) -> None:
        """`share`: retries that one first attempt earns, above 0 and at most 1."""
        self._deposit = round(share * _RETRY)
        self._most = max(_RETRY, self._deposit * self.BANKED)
        self._level = self._most

    def deposit(self) -> None:
        """A first attempt was made."""
        self._level = min(self._most, self._level + self._deposit)

    def withdraw(self) -> bool:
        """Pay for a retry; False, and nothing changed, when the budget is spent."""
        if self._level < _RETRY:
            return False
        self._level -= _RETRY
        return True
