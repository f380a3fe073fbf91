"""Tries once."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from agentload.behaviours import Attempt, Behaviour


class NoRetry(Behaviour):
    """`no-retry`: one attempt, whatever comes of it. Shows the gateway's own decisions, without echoes."""

    draws: ClassVar[bool] = False

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """Never."""
        return None
