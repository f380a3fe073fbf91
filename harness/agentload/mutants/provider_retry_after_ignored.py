"""The provider said when to come back, and nobody listened."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.gateway.protocol import ProviderRefused
from agentload.mutants import Mutant
from agentload.mutants._scenes import FAILING_PROVIDER


class ProviderRetryAfterIgnored(Mutant):
    """A refusal of the provider ends that call, and the next one goes out at once.

    Providers count what they refuse: who does not wait keeps its own limit exhausted.
    """

    row = "R14"
    breaks = "the provider is called again before the instant that it named"
    killed_by = "upstream-retry-after"
    profile = FAILING_PROVIDER

    def parts(self) -> Parts:
        return Parts(lifecycle=_Deaf)

    def half(self) -> Parts:
        return Parts(lifecycle=_HalfDeaf)


class _Deaf(RequestLifecycle):
    def handle(self, now_ns: int, event: object) -> Step:
        step = super().handle(now_ns, event)
        return [one for one in step if not isinstance(one, ProviderRefused)]


class _HalfDeaf(RequestLifecycle):
    """Waits half as long as it was told."""

    def handle(self, now_ns: int, event: object) -> Step:
        return [
            _halved(one) if isinstance(one, ProviderRefused) else one for one in super().handle(now_ns, event)
        ]


def _halved(refused: ProviderRefused) -> ProviderRefused:
    told_ns = refused.retry_after_ns
    return ProviderRefused(refused.request_id, None if told_ns is None else told_ns // 2)
