"""Short questions and answers of ordinary sizes."""

from __future__ import annotations

from random import Random

from agentload.model import Job
from agentload.workloads._sizes import ChatWorkload, TokenCount, Tokens


class Chat(ChatWorkload):
    """`{kind: chat, input_tokens: 30, max_tokens: 48, output_tokens: {min: 8, max: 24}, stream: 0.5}`.

    A bounded output is what keeps service times alike (CV about 0.25 for 8 to 24 tokens).
    """

    output_tokens: Tokens = TokenCount(min=8, max=24)
    """What the model really produces, cut at max_tokens."""

    def draw(self, random: Random, at_ns: int) -> Job:  # noqa: ARG002
        """Three draws."""
        return self.job(random, self.output_tokens.draw)
