"""The ETA of a job is how long it takes, whoever waits before it."""

from __future__ import annotations

from typing import Any

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.eta import Pace
from agentload.mutants import Mutant
from agentload.scheduler.config import GatewayConfig


class EtaLeavesTheQueueOut(Mutant):
    """Everybody is told how long a job takes, as if it began at once.

    Clients that plan by it come back too soon, again and again, and most of all when there is a queue.
    """

    row = "–"
    breaks = "clients in a queue are told a fraction of the time that it takes"
    killed_by = "eta-honest"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_AtOnce)


class _NoWait(Pace):
    def gap_ns(self, at_ns: int, lanes: int) -> float:  # noqa: ARG002
        return 0.0


class _AtOnce(JobsCore):
    def __init__(self, config: GatewayConfig, *args: Any, **more: Any) -> None:
        super().__init__(config, *args, **more)
        self._desk.paces = {name: _NoWait() for pool in config.pools.values() for name in pool.classes}
