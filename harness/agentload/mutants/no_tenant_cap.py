"""Fair turns, and no cap on what one tenant has in flight."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_pools
from agentload.scheduler.policies.sfq import StartTimeFairQueue


class NoTenantCap(Mutant):
    """A tenant that is alone for a moment may fill every slot, with calls that last.

    Fair queueing decides who starts next and not who holds what: a tenant with small calls waits until one of
    the long ones ends (nine to fifteen times as long as without them, in simulation).
    """

    row = "–"
    breaks = "a class mate with long calls holds every slot, and everybody waits until one of them ends"
    killed_by = "isolation"
    profile = "isolation"

    def parts(self) -> Parts:
        return Parts(policy=_Uncapped)

    def half(self) -> Parts:
        """All slots but two."""
        return Parts(gateway_config=lambda config: with_pools(config, tenant_slots=14))


class _Uncapped(StartTimeFairQueue):
    tenant_cap: ClassVar[bool] = False
