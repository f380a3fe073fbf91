"""A metric label for everybody who was ever seen."""

from __future__ import annotations

from typing import Any

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.books import Books
from agentload.gateway.core import GatewayCore
from agentload.gateway.tenant_labels import TenantLabels
from agentload.mutants import Mutant
from agentload.scheduler.config import GatewayConfig


class EveryTenantALabel(Mutant):
    """The tenant's name goes into the metrics as it is.

    Every series lives as long as the process, here and in the database behind it: 20,000 visitors make a page
    of 20,000 lines that takes seconds to scrape.
    """

    row = "L28"
    breaks = "the metrics grow by some lines with every tenant that comes once and never again"
    killed_by = "bounded-memory"
    profile = "tenant-churn"

    def parts(self) -> Parts:
        return Parts(core=_LabelsAll)


class _LabelsAll(GatewayCore):
    def __init__(self, config: GatewayConfig, *rest: Any, **more: Any) -> None:
        super().__init__(config, *rest, **more)
        classes = [name for pool in config.pools.values() for name in pool.classes]
        self.books = Books(_All((), 0), classes)


class _All(TenantLabels):
    def of(self, tenant: str) -> str:
        return tenant
