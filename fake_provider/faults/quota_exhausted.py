"""The account's money is spent: 429, without a promise, until the fault is over."""

from __future__ import annotations

from fake_provider.call import Call, Reason
from fake_provider.faults import AtArrival, Fault, RefuseCall


class QuotaExhausted(Fault):
    """What OpenAI calls `insufficient_quota`: it looks like a rate limit, and retrying never helps."""

    def at_arrival(self, call: Call) -> AtArrival | None:  # noqa: ARG002
        return RefuseCall(429, Reason.QUOTA)
