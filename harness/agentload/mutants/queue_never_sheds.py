"""The overload ends, and the queue goes on serving those who have given up."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import ClientLeft
from agentload.mutants import Mutant
from agentload.mutants._configs import without_bounds


class QueueNeverSheds(Mutant):
    """Nothing is ever dropped: not when the queue is long, not when its client has gone.

    Once waits exceed the clients' patience, all work is wasted on the departed, who send it again: goodput
    stays near zero long after the trigger has gone. Metastable failures (Huang et al., OSDI 2022) look so.
    """

    row = "F21"
    breaks = "after an overload goodput stays near zero, although capacity is back"
    killed_by = "recovery"
    profile = "retry-storm"

    def parts(self) -> Parts:
        return Parts(gateway_config=without_bounds, lifecycle=_Deaf)


class _Deaf(RequestLifecycle):
    def handle(self, now_ns: int, event: object) -> Step:
        if isinstance(event, ClientLeft) and self.state is State.WAITING:
            return []
        return super().handle(now_ns, event)
