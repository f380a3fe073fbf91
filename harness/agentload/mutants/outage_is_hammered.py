"""Refused calls are followed by the next ones at once, as many as there are slots."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes_provider import SILENT_OUTAGE
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.congestion import CongestionWindow
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.fair_queue import FairQueue


class OutageIsHammered(Mutant):
    """The provider's refusals change nothing about how many calls are made at once, or how soon.

    It obeys Retry-After where there is one; real outages rarely send it (a 529, a proxy's bare 503).
    """

    row = "R14"
    breaks = "an outage that does not say how long it lasts burns everything that waits"
    killed_by = "retry-amplification"
    profile = SILENT_OUTAGE

    def parts(self) -> Parts:
        return Parts(admission=_Undeterred)


class _Wide(CongestionWindow):
    def refused(self, now_ns: int, sent_ns: int, *, named: bool) -> int:  # noqa: ARG002
        """Nothing is learnt."""
        return 0


class _WideDispatcher(Dispatcher):
    def __init__(self, config: GatewayConfig, policy: type[FairQueue]) -> None:
        super().__init__(config, policy)
        self.limits.window = _Wide(1)


class _Undeterred(Admission):
    dispatcher = _WideDispatcher
