"""Never remembers that it has been here before."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour


class Forgetful(Behaviour):
    """`{kind: forgetful, gap_s: 0.5, max_attempts: 10}`: comes back at its own gap, whatever has gone wrong
    and whatever it was told, and calls every attempt its first. Its idempotency key alone gives it away.
    """

    draws: ClassVar[bool] = False

    sends_key: bool = True
    gap_s: float = Field(default=0.5, ge=0.001, le=3600)
    max_attempts: int = Field(default=10, ge=1, le=255)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """No draws. Even what was refused for good comes again."""
        return self.gap_s if attempt.number + 1 < self.max_attempts else None

    def said_attempt(self, number: int) -> int:  # noqa: ARG002
        """Always the first."""
        return 0
