"""No per-minute limit at all (slots still bound the calls in service)."""
# ruff: noqa: ARG002  -- whatever it is told, it does not care

from __future__ import annotations

from fake_provider.budget import Headers
from fake_provider.call import CallRequest, Shortage
from fake_provider.ledger import Caller
from fake_provider.policies import Policy


class Unlimited(Policy):
    """Every call passes and costs nothing."""

    def cost(self, request: CallRequest) -> int:
        return 0

    def shortages(self, now_ns: int, caller: Caller, cost: int) -> list[Shortage]:
        return []

    def take(self, now_ns: int, caller: Caller, cost: int) -> None:
        pass

    def refused(self, now_ns: int, caller: Caller) -> None:
        pass

    def produced(self, now_ns: int, caller: Caller, tokens: int) -> None:
        pass

    def headers(self, now_ns: int, caller: Caller) -> Headers:
        return []

    def scale(self, now_ns: int, factor: float) -> None:
        pass

    def levels(self, now_ns: int) -> list[dict[str, object]]:
        return []
