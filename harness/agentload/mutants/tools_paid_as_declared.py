"""Who says that it will use tools pays for them; who does not say so does not."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.config import EstimationConfig
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import Ticket
from agentload.scheduler.work import WorkMeter

_METER = WorkMeter(EstimationConfig())


class ToolsPaidAsDeclared(Mutant):
    """Declared tool work is charged for good, although nobody measures it and no provider does it.

    The article's formula, taken as the price: tokens, and a quarter of a unit for each tool call. The honest
    agent gets a thirtieth of what the silent one does.
    """

    row = "F4"
    breaks = "a false hint buys share: keeping silent about tools multiplies what a tenant gets"
    killed_by = "weighted-share"
    profile = "liar"

    def parts(self) -> Parts:
        return Parts(policy=_ChargesTools)


class _ChargesTools(StartTimeFairQueue):
    def settle(self, ticket: Ticket, work: int) -> None:
        tools = _METER.work(ticket.request, 0, 0)
        super().settle(ticket, work + (tools if tools > 1 else 0))
