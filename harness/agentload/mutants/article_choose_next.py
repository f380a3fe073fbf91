"""`choose_next` as published in "The Queue Is Part of the Agent"."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.article_drr import ArticleDrr


class ArticleChooseNext(Mutant):
    """Deficit accounting that credits every lane on every call, instead of once a round.

    Each call adds 10 credits to weights 5, 3 and 2, and a job takes only its own cost: with jobs smaller than
    that the heaviest lane always has most credit left, and is served alone.
    """

    row = "F8"
    breaks = "with small jobs the tenant of the largest weight is served alone"
    killed_by = "weighted-share"
    profile = "weighted-fair"

    def parts(self) -> Parts:
        return Parts(policy=ArticleDrr)
