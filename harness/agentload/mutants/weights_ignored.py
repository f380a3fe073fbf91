"""Weights are read, and forgotten."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane


class WeightsIgnored(Mutant):
    """All tenants weigh the same: per-key round-robin sold as weighted fairness."""

    row = "F8"
    breaks = "a tenant that pays for five shares is served one"
    killed_by = "weighted-share"
    profile = "weighted-fair"

    def parts(self) -> Parts:
        return Parts(policy=_Unweighted)

    def half(self) -> Parts:
        return Parts(policy=_RootsOfWeights)


class _Unweighted(StartTimeFairQueue):
    exponent: ClassVar[float] = 0.0

    def lane(self, tenant: str, weight: float) -> TenantLane | None:
        return super().lane(tenant, weight**self.exponent)


class _RootsOfWeights(_Unweighted):
    exponent: ClassVar[float] = 0.5
