"""No admission at all: every request goes to the provider at once. What a plain proxy does."""

from __future__ import annotations

from typing import ClassVar

from agentload.scheduler.policies.fifo import Fifo


class NoAdmission(Fifo):
    """No admission: everything is dispatched the moment it comes, as a plain proxy does.

    Lacks every safeguard: nothing waits here and nothing is bounded, no slots, no units, no limit towards the
    provider and no pause after its refusals, no look at deadlines, attempts or widths. The queue is wherever
    the provider has one. What remains is the bookkeeping of calls in flight, and the refusal of newcomers
    while the gateway shuts down.
    """

    admits: ClassVar[bool] = False

    def make_room(self) -> bool:
        """There are never too many tenants."""
        return True
