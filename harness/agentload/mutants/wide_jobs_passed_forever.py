"""A job that needs much room at once never finds it: smaller ones always slip past."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_pools


class WideJobsPassedForever(Mutant):
    """Whoever does not fit is skipped, without a bound on how often.

    The opposite of a blocked head, and the classic price of avoiding it: Kubernetes' API server lets a wide
    request gather its seats for that reason.
    """

    row = "F15"
    breaks = "a wide job waits for ever while small ones keep coming"
    killed_by = "long-job"
    profile = "long-jobs"

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: with_pools(config, gather_after_s=1e9))

    def half(self) -> Parts:
        return Parts(gateway_config=lambda config: with_pools(config, gather_after_s=10.0))
