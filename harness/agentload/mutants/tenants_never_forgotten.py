"""Every tenant that was ever seen is remembered for ever."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane


class TenantsNeverForgotten(Mutant):
    """A map by tenant to which entries are added and from which none are taken.

    Out of memory after weeks, with 1,776 keys that nobody used any more in one report; scans of all tenants
    grow slower meanwhile.
    """

    row = "L26"
    breaks = "memory grows with every tenant that comes once and never again"
    killed_by = "bounded-memory"
    profile = "tenant-churn"

    def parts(self) -> Parts:
        return Parts(policy=_Hoards)


class _Hoards(StartTimeFairQueue):
    def _perhaps_forget(self, lane: TenantLane) -> None:
        """Never."""
