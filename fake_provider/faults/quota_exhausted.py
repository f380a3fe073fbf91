"""The account's money is spent: 429, without a promise, until the fault is over."""

from __future__ import annotations

from typing import Literal

from fake_provider.call import Call, Reason
from fake_provider.faults import AtArrival, Fault, RefuseCall

Code = Literal[
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
]


class QuotaExhausted(Fault):
    """It looks like a rate limit, and retrying never helps: OpenAI's type `insufficient_quota`."""

    code: Code = "insufficient_quota"
    """OpenAI's code, the last four since 2026. Anthropic has one of its own, whatever is said here."""

    def at_arrival(self, call: Call) -> AtArrival | None:  # noqa: ARG002
        return RefuseCall(429, Reason.QUOTA, code=self.code)
