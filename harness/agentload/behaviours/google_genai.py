"""google-genai with its retries switched on, which is not the default (3.6: `_api_client.retry_args`)."""

from __future__ import annotations

from random import Random

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour
from agentload.behaviours._stainless import connection_failed
from agentload.behaviours._waits import exponential_jitter_s

LONGEST_S = 60.0
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})


class GoogleGenai(Behaviour):
    """`{kind: google-genai, max_attempts: 5}`: min(2^i + U(0, 1), 60) s, whatever the answer says."""

    max_attempts: int = Field(default=5, ge=1, le=255)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """One draw."""
        if attempt.number + 1 >= self.max_attempts or attempt.streamed:
            return None
        if not connection_failed(attempt) and attempt.status not in _RETRIED:
            return None
        return exponential_jitter_s(attempt.number, random, LONGEST_S)
