"""What a caller declares is what it pays, whatever it then uses."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes import LIAR
from agentload.scheduler.admission import Admission
from agentload.scheduler.estimate import Estimator
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import Ticket
from agentload.scheduler.work import Request


class EstimatesNeverCorrected(Mutant):
    """Work is charged as estimated, never as measured: neither is the account settled nor anything learnt.

    Estimates drift, and callers have every reason to let them: in simulation one who was underestimated ten
    times over took Jain's index from .996 to .41.
    """

    row = "F4"
    breaks = "a tenant whose calls turn out longer than declared gets more than its share"
    killed_by = "weighted-share"
    profile = LIAR

    def parts(self) -> Parts:
        return Parts(policy=_Unsettled, admission=_Unlearning)

    def half(self) -> Parts:
        """Learns, but does not settle."""
        return Parts(policy=_Unsettled)


class _Unsettled(StartTimeFairQueue):
    def charge(self, ticket: Ticket, work: int) -> None:
        """What it really cost does not matter."""


class _NothingLearnt(Estimator):
    def served(
        self,
        now_ns: int,
        request: Request,
        output_tokens: int,  # noqa: ARG002
        service_ns: int,
    ) -> None:
        """Durations are still learnt, for deadlines; tokens are not."""
        self._experience(request)[1].service.add(now_ns, service_ns)


class _Unlearning(Admission):
    estimator: ClassVar[type[Estimator]] = _NothingLearnt
