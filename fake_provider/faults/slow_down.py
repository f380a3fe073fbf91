"""The caller's load grew too fast: 429 `slow_down`."""

from __future__ import annotations

from pydantic import Field

from fake_provider.call import Call, Reason
from fake_provider.faults import AtArrival, Fault, RefuseCall


class SlowDown(Fault):
    """OpenAI's answer to a ramp of more than 50 % in 15 minutes above a million input tokens per minute."""

    share: float = Field(default=1.0, ge=0, le=1)
    """Share of the calls that are refused, each by its own draw."""
    retry_after_s: int | None = Field(default=1, ge=0)
    """Sent as Retry-After; None: no hint."""

    def at_arrival(self, call: Call) -> AtArrival | None:
        if call.draw(f"slow_down/{self.start_ns}") >= self.share:
            return None
        return RefuseCall(429, Reason.SLOW_DOWN, self.retry_after_s)
