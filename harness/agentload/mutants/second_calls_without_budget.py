"""Every failed call is made again, through the limiter, whatever share of all calls that is."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.settings import GatewaySettings, UpstreamRetries
from agentload.mutants import Mutant
from agentload.mutants._scenes_provider import RESETS


class SecondCallsWithoutBudget(Mutant):
    """A number of tries for each request instead of a share of all.

    When nothing fails it costs nothing, and when everything fails it multiplies the load by the number.
    """

    row = "L21"
    breaks = "a provider whose connections break gets three times the load"
    killed_by = "retry-amplification"
    profile = RESETS

    def parts(self) -> Parts:
        return Parts(settings=_settings(3))

    def half(self) -> Parts:
        return Parts(settings=_settings(2))


def _settings(attempts: int) -> GatewaySettings:
    retries = UpstreamRetries(budget=1, burst=1e9, max_attempts=attempts)
    return GatewaySettings(upstream_retries=retries)
