"""The limiter counts calls, and the provider counts tokens."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_upstream
from agentload.mutants._scenes import LARGE_CALLS
from agentload.scheduler.config import GatewayConfig


class CountsRequestsNotTokens(Mutant):
    """A limit on tokens per minute that is configured, shown, and not enforced.

    A limiter that counts only requests passes a hundred small calls and trips over one large one.
    """

    row = "L1"
    breaks = "the provider is offered more tokens than it allows, and refuses"
    killed_by = "provider-limit"
    profile = LARGE_CALLS

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: with_upstream(config, tokens_per_minute=None))

    def half(self) -> Parts:
        return Parts(gateway_config=_a_fifth_more)


def _a_fifth_more(config: GatewayConfig) -> GatewayConfig:
    limit = config.upstream.tokens_per_minute
    return with_upstream(config, tokens_per_minute=None if limit is None else limit * 1.2)
