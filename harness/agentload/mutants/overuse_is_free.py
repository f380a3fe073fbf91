"""What was not used is given back; what was used beyond that is not asked for."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import Ticket


class OveruseIsFree(Mutant):
    """Accounts are settled in one direction: refunds for what was estimated too high, and nothing more.

    A correction that was written for complaints. Whoever needs more than expected, or now and then very much
    more, is charged the estimate at most.
    """

    row = "F4"
    breaks = "tenants whose calls vary, or turn out longer than declared, get more than their share"
    killed_by = "estimate-drift"
    profile = "liar"

    def parts(self) -> Parts:
        return Parts(policy=_RefundsOnly)


class _RefundsOnly(StartTimeFairQueue):
    def charge(self, ticket: Ticket, work: int) -> None:
        if work < 0:
            super().charge(ticket, work)
