"""Each layer retries three times, and the layers multiply."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._naive_retry import NaiveRetry
from agentload.mutants._scenes import FAILING_PROVIDER


class NestedRetries(Mutant):
    """Three tries of the client library, inside three tries of the router: nine calls for one request.

    Twelve were counted in the wild, and (1 + N)² in one documented configuration. (Under a load that leaves
    room below the provider's limit, or that would be exceeded first.)
    """

    row = "L21"
    breaks = "an outage multiplies the load on the provider by nine"
    killed_by = "retry-amplification"
    profile = FAILING_PROVIDER
    settings = ("tenants.plain.arrivals.rate=8", "tenants.streamed.arrivals.rate=8")

    def parts(self) -> Parts:
        return Parts(lifecycle=_ThreeTimesThree)

    def half(self) -> Parts:
        return Parts(lifecycle=_ThreeOnce)


class _ThreeTimesThree(NaiveRetry):
    retries: ClassVar[int] = 8


class _ThreeOnce(NaiveRetry):
    retries: ClassVar[int] = 2
