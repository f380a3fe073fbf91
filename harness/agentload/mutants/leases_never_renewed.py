"""A lease is taken when a step begins, and never renewed."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.jobs.core import JobsCore
from agentload.mutants import Mutant


class LeasesNeverRenewed(Mutant):
    """No heartbeat: a step that takes longer than its lease is taken from a holder that lives.

    It is begun again and again, and each time given up before it can be done; with tools that are not
    idempotent it is done several times at once.
    """

    row = "D6"
    breaks = "steps longer than a lease are run again and again beside themselves"
    killed_by = "lease-reclaim"
    profile = "worker-crash"

    def parts(self) -> Parts:
        return Parts(jobs=_NoHeartbeat)


class _NoHeartbeat(JobsCore):
    def _beat(self, at_ns: int) -> None:  # noqa: ARG002
        self._leases.due_ns = None
