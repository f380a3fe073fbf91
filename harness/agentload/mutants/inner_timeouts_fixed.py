"""Four timeouts, each written down once and for all."""

from __future__ import annotations

from dataclasses import replace

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.model import NS
from agentload.mutants import Mutant
from agentload.scheduler.events import Dispatched


class InnerTimeoutsFixed(Mutant):
    """A call to the provider may take what the settings say, whatever is left of the caller's deadline.

    "If the inner timeout exceeds the outer one, the outer never fires cleanly and you get a run killed
    mid-step with no record of where it was": five seconds to connect, sixty to the first byte.
    """

    row = "D3"
    breaks = "clients run into their own timeouts, and nobody records where the time went"
    killed_by = "nested-timeouts"
    profile = "deadlines"

    def parts(self) -> Parts:
        return Parts(lifecycle=_AsConfigured)

    def half(self) -> Parts:
        """They are derived from the deadline, and a second too long."""
        return Parts(lifecycle=_ASecondMore)


class _AsConfigured(RequestLifecycle):
    more_ns: int | None = None

    def handle(self, now_ns: int, event: object) -> Step:
        deadline_ns = self.request.deadline_ns
        if isinstance(event, Dispatched) and deadline_ns is not None:
            later_ns = None if self.more_ns is None else deadline_ns + self.more_ns
            self.request = replace(self.request, deadline_ns=later_ns)
        return super().handle(now_ns, event)


class _ASecondMore(_AsConfigured):
    more_ns = NS
