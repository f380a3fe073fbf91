"""Comes back exactly when told."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour


class Obeys(Behaviour):
    """`{kind: obeys, max_attempts: 6}`: waits exactly what Retry-After says, without jitter.

    An answer without Retry-After is final: this client shows what the promise alone is worth.
    """

    draws: ClassVar[bool] = False

    max_attempts: int = Field(default=6, ge=1, le=255)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """No draws. Dates in the past and negative numbers mean at once."""
        if attempt.number + 1 >= self.max_attempts or attempt.streamed or attempt.retry_after_s is None:
            return None
        return max(0.0, attempt.retry_after_s)
