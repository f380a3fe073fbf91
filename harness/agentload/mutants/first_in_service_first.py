"""Who waits for a model's limit keeps its place by what it has in service."""

from __future__ import annotations

from collections.abc import Sequence

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes_provider import MODELS
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane


class FirstInServiceFirst(Mutant):
    """Tenants that wait for a model that has no allowance left are lifted to the present of those whose model
    has some, each the less the more it has in service.

    The reference did this: of two tenants that wanted more of one model than there was, the one that was
    served first got all of it for ten seconds, as long as a third one was served by another model.
    """

    row = "F7"
    breaks = "of the tenants that wait for the same model one is served and the others are not"
    killed_by = "no-starvation"
    profile = MODELS

    def parts(self) -> Parts:
        return Parts(policy=_EachByItself)


class _EachByItself(StartTimeFairQueue):
    def put_back(self, lanes: Sequence[TenantLane]) -> None:
        for lane in lanes:
            self.resumed(lane)
