"""All tenants pay for one refused call with a second of silence."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.gateway.protocol import ProviderRefused
from agentload.model import NS
from agentload.mutants import Mutant
from agentload.mutants._scenes_provider import STRAY_REFUSALS


class OneRefusalStopsEverybody(Mutant):
    """A refusal without Retry-After closes the provider for a second, as a router's cooldown does.

    "No deployments available" after one 429 is what users of such routers report.
    """

    row = "R13"
    breaks = "a provider that refuses one call in thirty is hardly used"
    killed_by = "overload-goodput"
    profile = STRAY_REFUSALS

    def parts(self) -> Parts:
        return Parts(lifecycle=_CoolsDown)


class _CoolsDown(RequestLifecycle):
    def handle(self, now_ns: int, event: object) -> Step:
        return [
            ProviderRefused(one.request_id, one.retry_after_ns or NS, one.by_rate)
            if isinstance(one, ProviderRefused)
            else one
            for one in super().handle(now_ns, event)
        ]
