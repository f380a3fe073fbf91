"""openai for JavaScript, today (read in 6.49)."""

from __future__ import annotations

from agentload.behaviours import Attempt
from agentload.behaviours._stainless import StainlessClient, javascript_told_s

LONGEST_TIMER_S = (2**31 - 1) / 1000
"""`setTimeout` fires after 1 ms when it is asked for more than this, for less than 1 ms, or for NaN."""


class OpenaiJs(StainlessClient):
    """`{kind: openai-js, max_retries: 2}`: waits whatever Retry-After says; 0, past, garbage: at once."""

    longest_wait_s = float("inf")

    def obeyed_s(self, attempt: Attempt, told_s: float | None) -> float | None:
        """At once is a timer's shortest: 1 ms."""
        told_s = javascript_told_s(attempt)
        if told_s is None:
            return None
        return told_s if 0 < told_s <= LONGEST_TIMER_S else 0.001
