"""Runs made by hand with several service classes: material for the checks of classes."""

from __future__ import annotations

from collections.abc import Mapping

from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import Outcome
from fake_provider.config import ProviderConfig


class ClassScene:
    """A run under construction whose tenants are of different classes."""

    def __init__(self, classes: Mapping[str, str], *, slots: int, phases: Mapping[str, float]) -> None:
        """`classes`: tenant → service class."""
        self.build = RunBuilder(
            profile(
                phases=phases,
                tenants=dict.fromkeys(classes, 1.0),
                classes=classes,
                provider=ProviderConfig(slots=slots),
            )
        )

    def backlog(self, tenant: str, start_ms: float, end_ms: float, *, slots: int, service_ms: float) -> None:
        """From `start_ms` to `end_ms` the tenant holds so many slots, and one more request always waits."""
        rounds = int((end_ms - start_ms) / service_ms)
        for k in range(rounds):
            at_ms = start_ms + k * service_ms
            for _ in range(slots):
                self.build.answered(tenant, at_ms, service_ms=service_ms)
        self.build.ended(tenant, start_ms, Outcome.UNFINISHED, after_ms=end_ms - start_ms)
