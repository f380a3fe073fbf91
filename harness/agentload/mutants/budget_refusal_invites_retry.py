"""Out of money: try again in a second."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.door import Door
from agentload.scheduler.events import Refused
from agentload.scheduler.reasons import Reason
from agentload.scheduler.work import Request


class BudgetRefusalInvitesRetry(Mutant):
    """A spent budget is answered like load, with 429 and Retry-After, so SDKs come back by themselves.

    An agent takes it for a hint to call again, and the loop that the budget should end goes on.
    """

    row = "R10"
    breaks = "whoever has spent everything is asked to come back, again and again"
    killed_by = "budget"
    profile = "runaway-agent"

    def parts(self) -> Parts:
        return Parts(admission=_Inviting)


class _SaysTooManyRequests(Door):
    def refused(self, now_ns: int, request: Request, cls: ServiceClass) -> Refused | None:
        refused = super().refused(now_ns, request, cls)
        if refused is None or refused.reason is not Reason.BUDGET_SPENT:
            return refused
        return self._refusals.for_now(now_ns, request, Reason.TENANT_OVER_LIMIT, cls)


class _Inviting(Admission):
    door: ClassVar[type[Door]] = _SaysTooManyRequests
