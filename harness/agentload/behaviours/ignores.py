"""Comes back when it pleases."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour
from agentload.model import Outcome

_REFUSALS = frozenset({Outcome.REJECTED, Outcome.EXPIRED})


class Ignores(Behaviour):
    """`{kind: ignores, gap_s: 0.5, max_attempts: 10}`: retries refusals at a fixed gap whatever they say."""

    draws: ClassVar[bool] = False

    gap_s: float = Field(default=0.5, ge=0.001, le=3600)
    max_attempts: int = Field(default=10, ge=1, le=255)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """No draws."""
        if attempt.number + 1 >= self.max_attempts or attempt.outcome not in _REFUSALS:
            return None
        return self.gap_s
