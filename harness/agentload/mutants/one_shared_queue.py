"""One line for all tenants: whoever sends most is served most."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import LOOK_AHEAD, StartTimeFairQueue
from agentload.scheduler.tenants import Ticket


class OneSharedQueue(Mutant):
    """First come, first served over all tenants, in a gateway that keeps every bound and cap.

    The most common failure of all: one tenant uploads ten thousand documents, and everybody else waits behind
    them (a build service with 1,000 jobs of one user against one of another; 51 namespaces on one deque).
    """

    row = "F1"
    breaks = "a quiet tenant waits behind everything that a noisy one has sent before"
    killed_by = "victim-latency"
    profile = "noisy-neighbor"

    def parts(self) -> Parts:
        return Parts(policy=_Fifo)

    def half(self) -> Parts:
        return Parts(policy=_FifoEverySecondTime)


class _Fifo(StartTimeFairQueue):
    def head(self) -> Ticket | None:
        return next((ticket for ticket in self.waiting.values() if not ticket.lane.blocked), None)

    def head_within(self, room: int) -> Ticket | None:
        oldest = [ticket for ticket in self.waiting.values() if not ticket.lane.blocked][:LOOK_AHEAD]
        return next((ticket for ticket in oldest if ticket.width <= room), None)


class _FifoEverySecondTime(_Fifo):
    starts = 0

    def head(self) -> Ticket | None:
        return super().head() if self.starts % 2 else StartTimeFairQueue.head(self)

    def started(self, ticket: Ticket) -> None:
        super().started(ticket)
        self.starts += 1
