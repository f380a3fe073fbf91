"""A pool of one's own, on paper."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig


class DedicatedPoolIsShared(Mutant):
    """All pools are one: what a dedicated one does not use helps out elsewhere.

    It has its share of the whole, and priority up to that. But calls are not preempted, and its slots are
    full of others' long calls when it wants one: fairness is not isolation.
    """

    row = "–"
    breaks = "a tenant with a pool of its own waits until a call of somebody else's flood ends"
    killed_by = "isolation"
    profile = "isolation"

    def parts(self) -> Parts:
        return Parts(gateway_config=_merged)


def _merged(config: GatewayConfig) -> GatewayConfig:
    slots = sum(pool.slots for pool in config.pools.values())
    classes = {
        name: _scaled(one, pool.slots / slots)
        for pool in config.pools.values()
        for name, one in pool.classes.items()
    }
    name, first = next(iter(config.pools.items()))
    merged = first.model_copy(update={"slots": slots, "tenant_slots": None, "classes": classes})
    return config.model_copy(update={"pools": {name: PoolConfig.model_validate(dict(merged))}})


def _scaled(one: ClassConfig, part: float) -> ClassConfig:
    """Its part of the larger pool; floors are what a pool of one's own was to be instead of."""
    return one.model_copy(update={"nominal_share": one.nominal_share * part, "min_units": 0.0})
