"""A gateway that is full says that it is ill."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.core import GatewayCore
from agentload.mutants import Mutant

MOST = 48
"""Requests at once: three halves of overload's slots, and less than it lets wait."""


class HealthPageIsLimited(Mutant):
    """The health page counts against the limit on requests, and is refused with 503 as they are.

    As with a server's own limit of connections (`--limit-concurrency`), or a health route behind the same
    middleware as all others: an orchestrator sees a full gateway as a dead one, kills it, and the flood goes
    on to the next.
    """

    row = "D10"
    breaks = "a flood gets the gateway itself killed, with everybody's work in it"
    killed_by = "health-probe"
    profile = "overload"

    def parts(self) -> Parts:
        return Parts(core=_Limited)


class _Limited(GatewayCore):
    def ailment(self) -> str | None:
        return "at the limit" if self.open_requests >= MOST else None
