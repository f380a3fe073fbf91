"""LiteLLM's Router with one deployment (1.110: `calculate_retry_after`). The SDK's retries are off."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour
from agentload.behaviours._stainless import INITIAL_S, MAX_BACKOFF_S, connection_failed, is_retried

JITTER_S = 0.75
LONGEST_OBEYED_S = 60


class LitellmRouter(Behaviour):
    """`{kind: litellm-router, num_retries: 2}`: Retry-After to 60 s, or min(0.5·2^i, 8); plus U(0, 0.75) s.

    It reads whole seconds and dates; fractions and `retry-after-ms` it does not.
    """

    timeout_s: float = Field(default=600.0, gt=0, le=3600)
    num_retries: int = Field(default=2, ge=0, le=254)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """One draw."""
        if attempt.number >= self.num_retries or attempt.streamed:
            return None
        if not connection_failed(attempt) and not is_retried(attempt.status):
            return None
        jitter_s = JITTER_S * random.random()
        told_s = None if connection_failed(attempt) else _whole_seconds(attempt)
        if told_s is not None and 0 < told_s <= LONGEST_OBEYED_S:
            return told_s + jitter_s
        return min(INITIAL_S * 2.0 ** min(attempt.number, 1000), MAX_BACKOFF_S) + jitter_s


def _whole_seconds(attempt: Attempt) -> int | None:
    """`int(header)`, and of a date the whole seconds until then; None where that fails."""
    raw, told_s = attempt.retry_after, attempt.retry_after_s
    if raw is None:
        return int(told_s) if told_s is not None and told_s.is_integer() else None
    with suppress(ValueError):
        return int(raw)
    return int(told_s) if told_s is not None and not _is_number(raw) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
