"""A few answers that cost as much as all the others."""

from __future__ import annotations

from random import Random

from pydantic import Field

from agentload.model import Job
from agentload.workloads._sizes import ChatWorkload, clipped_pareto


class Pareto(ChatWorkload):
    """`{kind: pareto, mean_output_tokens: 16, alpha: 1.2, clip: 8}`: heavy-tailed output.

    The tail is cut at clip × mean and the scale is raised so that the MEAN stays as written: the same rate
    offers the same work whatever the tail (within rounding to whole tokens). Without a cut, one job could be
    longer than a short run, and no fairness bound could fail. Only max_tokens, where given, lowers the mean.
    """

    mean_output_tokens: float = Field(default=16.0, ge=1, le=8192)
    alpha: float = Field(default=1.2, gt=1, le=10)
    """Tail index: the smaller, the heavier the tail."""
    clip: float = Field(default=8.0, gt=1, le=1000)
    """No output is longer than so many times the mean."""

    def draw(self, random: Random, at_ns: int) -> Job:  # noqa: ARG002
        """Three draws."""
        return self.job(random, self._output_tokens)

    def _output_tokens(self, random: Random) -> int:
        return max(1, round(clipped_pareto(self.mean_output_tokens, self.alpha, self.clip, random.random())))
