"""tenacity as OpenAI's documentation shows it: `wait_random_exponential(1, 60)`, `stop_after_attempt(6)`."""

from __future__ import annotations

from random import Random

from pydantic import Field

from agentload.behaviours._layered import LayeredClient


class Tenacity(LayeredClient):
    """`{kind: tenacity, max_attempts: 6, sdk_retries: 2}`: U(1, min(2^i, 60)) s between tries of an SDK.

    Whatever the answer says; with the SDK's own two retries, eighteen attempts in all.
    """

    max_attempts: int = Field(default=6, ge=1, le=255)
    min_s: float = Field(default=1.0, ge=0, le=3600)
    max_s: float = Field(default=60.0, ge=0, le=3600)

    def wait_s(self, number: int, random: Random) -> float:
        widest_s = max(self.min_s, min(2.0 ** min(number, 1000), self.max_s))
        return random.uniform(self.min_s, widest_s)
