"""The client everyone fears."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour


class Hammer(Behaviour):
    """`{kind: hammer, max_attempts: 10}`: again at once, after refusals, failures and timeouts alike."""

    draws: ClassVar[bool] = False

    max_attempts: int = Field(default=10, ge=1, le=255)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """No draws, no wait."""
        return 0.0 if attempt.number + 1 < self.max_attempts else None
