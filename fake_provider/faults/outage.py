"""The provider is down: every call is refused at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fake_provider.call import Call, Reason
from fake_provider.faults import AtArrival, Fault, RefuseCall


class Outage(Fault):
    """503 as OpenAI has it, or 529 as Anthropic does."""

    status: Literal[503, 529] | None = None
    """None: as the API has it that was called."""
    retry_after_s: int | None = Field(default=None, ge=0)
    """Sent as Retry-After; None, as real overloads do: no hint."""

    def at_arrival(self, call: Call) -> AtArrival | None:
        status = call.request.overloaded_status if self.status is None else self.status
        return RefuseCall(status, Reason.OVERLOADED, self.retry_after_s)
