"""Configurations with one thing changed everywhere, for mutants of what is configured."""

from __future__ import annotations

from collections.abc import Callable

from agentload.scheduler.config import ClassConfig, GatewayConfig


def with_pools(config: GatewayConfig, **changed: object) -> GatewayConfig:
    """Every pool with some of its fields changed."""
    pools = {name: pool.model_copy(update=changed) for name, pool in config.pools.items()}
    return config.model_copy(update={"pools": pools})


def with_classes(config: GatewayConfig, **changed: object) -> GatewayConfig:
    """Every service class with some of its fields changed."""
    pools = {
        name: pool.model_copy(
            update={"classes": {key: one.model_copy(update=changed) for key, one in pool.classes.items()}}
        )
        for name, pool in config.pools.items()
    }
    return config.model_copy(update={"pools": pools})


def with_retry(config: GatewayConfig, **changed: object) -> GatewayConfig:
    """What refused callers are told, changed."""
    return config.model_copy(update={"retry": config.retry.model_copy(update=changed)})


def with_upstream(config: GatewayConfig, **changed: object) -> GatewayConfig:
    """What the gateway believes of the provider's limits, changed."""
    return config.model_copy(update={"upstream": config.upstream.model_copy(update=changed)})


def without_bounds(config: GatewayConfig) -> GatewayConfig:
    """Queues that take everything, for as long as it takes."""
    return with_classes(config, max_queue=10**9, tenant_max_queue=10**9, max_wait_s=86_400.0)


def each_class(config: GatewayConfig, change: Callable[[ClassConfig], ClassConfig]) -> GatewayConfig:
    """Every service class as `change` makes it."""
    pools = {
        name: pool.model_copy(update={"classes": {key: change(one) for key, one in pool.classes.items()}})
        for name, pool in config.pools.items()
    }
    return config.model_copy(update={"pools": pools})
