"""What was under way when the gateway died is under way for ever."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs.core import JobsCore
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import JobState
from agentload.gateway.jobs.news import Effects
from agentload.mutants import Mutant


class OrphansStayRunning(Mutant):
    """A gateway that starts believes the rows: what says `running` has a holder, and is left to it.

    The holder has died with the gateway before. Nobody looks at leases again.
    """

    row = "D8"
    breaks = "a job that ran when its gateway died stays `running` for ever"
    killed_by = "lease-reclaim"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_Believes)


class _Leaves(JobLifecycle):
    def recovered(self, at_ns: int) -> Effects:
        return [] if self.job.state is JobState.RUNNING else super().recovered(at_ns)


class _Believes(JobsCore):
    lifecycle = _Leaves
