"""How much of the load on the provider may be the gateway's own retries. PURE."""

from __future__ import annotations

from agentload.gateway.settings import UpstreamRetries


class RetryBudget:
    """A bucket of retries that fresh calls fill: each brings `budget` of one, and at most `burst` are kept.

    A share of the calls and not a number per call (Google, "Site Reliability Engineering", chapter 21): when
    one call in a hundred fails, all of those are made again; when all fail, an outage is made a tenth worse
    and not twice as bad. Starts full, so that the first failure after a start can be made good.
    """

    def __init__(self, config: UpstreamRetries) -> None:
        self._per_call = config.budget
        self._most = config.burst if config.budget else 0.0
        self._left = self._most

    @property
    def left(self) -> float:
        """Retries that may be made now."""
        return self._left

    def earn(self) -> None:
        """A call is made for the first time."""
        if self._left < self._most:
            self._left = min(self._most, self._left + self._per_call)

    def take(self) -> bool:
        """Take one retry, if there is one."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """The retry was not made."""
        self._left = min(self._most, self._left + 1)
