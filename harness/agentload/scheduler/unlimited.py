"""A configuration that refuses nothing and keeps nothing waiting: the gateway without its admission."""

from __future__ import annotations

from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, TenantConfig

AMPLE = 10**9
"""More than there ever is, of whatever is counted."""


def without_admission(config: GatewayConfig) -> GatewayConfig:
    """The same pools, classes, tenants and estimates, with no limit on anything.

    Made from the defaults and not from a list of limits to lift, so that a limit which is added later (and is
    off by default, as all are) is off here, too.
    """
    return GatewayConfig(
        policy=config.policy,
        pools={name: _unlimited(pool) for name, pool in config.pools.items()},
        retry=config.retry,
        estimation=config.estimation.model_copy(update={"max_reservation_units": AMPLE}),
        tenants={
            name: TenantConfig.model_validate({"class": tenant.service_class, "weight": tenant.weight})
            for name, tenant in config.tenants.items()
        },
        max_tenants=config.max_tenants,
    )


def _unlimited(pool: PoolConfig) -> PoolConfig:
    return PoolConfig(
        capacity_units=AMPLE,
        slots=AMPLE,
        tenant_slots=AMPLE,
        lease_s=pool.lease_s,
        classes={
            name: ClassConfig(
                nominal_share=one.nominal_share,
                max_queue=AMPLE,
                tenant_max_queue=AMPLE,
                max_queue_bytes=AMPLE * 1_000,
                max_wait_s=AMPLE,
            )
            for name, one in pool.classes.items()
        },
    )
