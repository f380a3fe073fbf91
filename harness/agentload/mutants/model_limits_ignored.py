"""The limit of one model is not known; that of all together is."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_upstream
from agentload.mutants._scenes_provider import MODELS
from agentload.scheduler.config import GatewayConfig


class ModelLimitsIgnored(Mutant):
    """One bucket for the provider, which keeps one for each model.

    Limits are per model, and large models have the lower ones: a limiter that does not look at the name lets
    the calls of one model through on the allowance of another.
    """

    row = "L1"
    breaks = (
        "a model with a lower limit is offered more than that, while the sum is within what others may have"
    )
    killed_by = "provider-limit"
    profile = MODELS

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: with_upstream(config, models={}))

    def half(self) -> Parts:
        return Parts(gateway_config=_a_fifth_more)


def _a_fifth_more(config: GatewayConfig) -> GatewayConfig:
    models = {
        name: one.model_copy(
            update={"tokens_per_minute": one.tokens_per_minute and one.tokens_per_minute * 1.2}
        )
        for name, one in config.upstream.models.items()
    }
    return with_upstream(config, models=models)
