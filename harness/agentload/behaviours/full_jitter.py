"""Exponential backoff with full jitter, as Amazon's builders and the article on queues recommend it."""

from __future__ import annotations

from random import Random

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour


class FullJitter(Behaviour):
    """`{kind: full-jitter, base_s: 2, cap_s: 120, max_attempts: 6}`: U(0, min(cap, base · 2^i)) s, always.

    Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015; the defaults are those of
    "The Queue Is Part of the Agent". It reads no Retry-After: it spreads retries, and sheds none.
    """

    base_s: float = Field(default=2.0, ge=0.001, le=3600)
    cap_s: float = Field(default=120.0, ge=0.001, le=3600)
    max_attempts: int = Field(default=6, ge=1, le=255)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """One draw for each retry."""
        if attempt.number + 1 >= self.max_attempts:
            return None
        return random.random() * min(self.cap_s, self.base_s * 2.0 ** min(attempt.number, 1000))
