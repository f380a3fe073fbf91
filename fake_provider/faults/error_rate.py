"""A share of the calls fails, each by its own draw."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fake_provider.call import Call
from fake_provider.faults import AtArrival, Fault, RefuseCall, reason_of


class ErrorRate(Fault):
    """Each call fails with probability `rate`; the same calls fail in every run of the same seed."""

    rate: float = Field(ge=0, le=1)
    status: Literal[403, 408, 500, 502, 503, 504, 529] = 500

    def at_arrival(self, call: Call) -> AtArrival | None:
        if call.draw(f"error_rate/{self.start_ns}") >= self.rate:
            return None
        return RefuseCall(self.status, reason_of(self.status))
