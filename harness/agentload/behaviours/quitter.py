"""Loses patience, or has read enough, and is gone."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from pydantic import Field

from agentload.behaviours import Attempt, Behaviour

PATIENCE_S = 1.0


class Quitter(Behaviour):
    """`{kind: quitter, leave_s: 1}`: leaves if nothing has come by then, or after `leave_tokens` of a stream.

    It closes its connection and never comes back. Of a stream, the first token counts as something, the
    status line does not; a plain answer comes all at once.
    """

    draws: ClassVar[bool] = False

    leave_s: float | None = Field(default=None, gt=0, le=3600)
    """None: 1 s, or never before the first token where `leave_tokens` is given."""
    leave_tokens: int | None = Field(default=None, ge=1, le=65_535)

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:  # noqa: ARG002
        """Never."""
        return None

    def leave_after_s(self) -> float | None:
        if self.leave_s is None and self.leave_tokens is None:
            return PATIENCE_S
        return self.leave_s

    def leave_after_tokens(self) -> int | None:
        return self.leave_tokens
