"""Everything is taken in, whether or not it can be served."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_classes, without_bounds
from agentload.scheduler.config import GatewayConfig


class UnboundedQueue(Mutant):
    """No bound on requests, tenants or time in the queue: 150,000 waiting jobs, and nobody was refused."""

    row = "F17"
    breaks = "the queue grows as long as the overload lasts, and everybody's wait with it"
    killed_by = "bounded-queue"
    profile = "overload"

    def parts(self) -> Parts:
        return Parts(gateway_config=without_bounds)

    def half(self) -> Parts:
        return Parts(gateway_config=_a_fifth_more)


def _a_fifth_more(config: GatewayConfig) -> GatewayConfig:
    """The class's bound is a fifth too high, and a tenant may use all of it."""
    bounds = [one.max_queue for pool in config.pools.values() for one in pool.classes.values()]
    higher = round(max(bounds) * 1.2)
    return with_classes(config, max_queue=higher, tenant_max_queue=higher)
