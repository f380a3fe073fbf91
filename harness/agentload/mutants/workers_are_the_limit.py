"""As many calls at once as there are workers, whatever the provider allows."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_pools, with_upstream
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig


class WorkersAreTheLimit(Mutant):
    """Nothing stands between the workers and the provider's limit: every call goes out at once.

    "Adding workers past the provider's tokens-per-minute allowance converts throughput into retry traffic":
    the refusals use up the requests per minute, and what is served falls as workers are added.
    """

    row = "L1"
    breaks = "the more workers there are, the fewer answers they get"
    killed_by = "overload-goodput"
    profile = "worker-sweep"

    def parts(self) -> Parts:
        return Parts(admission=_Unimpressed, gateway_config=_unlimited)


def _unlimited(config: GatewayConfig) -> GatewayConfig:
    return with_upstream(
        with_pools(config, slots=10_000, tenant_slots=10_000, capacity_units=1e6),
        tokens_per_minute=None,
        requests_per_minute=None,
    )


class _Unimpressed(Admission):
    def provider_refused(
        self, now_ns: int, request_id: int, retry_after_ns: int | None, *, by_rate: bool = True
    ) -> None:
        """It goes on as before."""
