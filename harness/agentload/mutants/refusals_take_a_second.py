"""No place, and a second to say so."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import TimedOut
from agentload.mutants import Mutant
from agentload.scheduler.admission import Refused

PATIENCE_NS = 1_000_000_000


class RefusalsTakeASecond(Mutant):
    """A full queue is waited for with a timeout (`wait_for(acquire(), 1)`) instead of refusing at once.

    Refused callers hold their connections meanwhile: under a flood that is a second, unbounded queue.
    """

    row = "–"
    breaks = "a caller that will be refused is kept waiting first"
    killed_by = "refusal-latency"
    profile = "noisy-neighbor"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Hesitates, watched=False)


class _Hesitates(RequestLifecycle):
    refused: Refused | None = None

    def handle(self, now_ns: int, event: object) -> Step:
        if self.state is State.WAITING and isinstance(event, Refused):
            self.refused, self.timer_ns = event, now_ns + PATIENCE_NS
            return []
        if self.state is State.WAITING and isinstance(event, TimedOut):
            return super().handle(now_ns, self.refused)
        return super().handle(now_ns, event)
