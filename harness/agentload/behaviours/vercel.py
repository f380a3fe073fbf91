"""The Vercel AI SDK (read in ai 6.0.326: `retryWithExponentialBackoffRespectingRetryHeaders`)."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour
from agentload.behaviours._stainless import is_retried
from agentload.model import Outcome

INITIAL_S = 2.0
LONGEST_OBEYED_S = 60.0


class Vercel(Behaviour):
    """`{kind: vercel, max_retries: 2}`: 2 s, then 4 s, without jitter; or Retry-After if it is below 60 s.

    (Or below its own wait, where that is longer.) A call that its caller aborted is not made again.
    """

    draws: ClassVar[bool] = False

    timeout_s: float = Field(default=300.0, gt=0, le=3600)
    max_retries: int = Field(default=2, ge=0, le=254)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """No draws."""
        if attempt.number >= self.max_retries or attempt.streamed or attempt.outcome is Outcome.ABANDONED:
            return None
        backoff_s = INITIAL_S * 2.0 ** min(attempt.number, 1000)
        if attempt.status == 0 or attempt.outcome is Outcome.TRUNCATED:
            return backoff_s
        if not is_retried(attempt.status):
            return None
        told_s = attempt.retry_after_s if attempt.retry_after_ms is None else attempt.retry_after_ms / 1000
        if told_s is not None and told_s >= 0 and (told_s < LONGEST_OBEYED_S or told_s < backoff_s):
            return told_s
        return backoff_s
