"""Every request the same."""

from __future__ import annotations

from random import Random

from pydantic import Field

from agentload.model import Job
from agentload.workloads._sizes import MAX_OUTPUT_TOKENS, ChatWorkload


class Fixed(ChatWorkload):
    """`{kind: fixed, input_tokens: 24, output_tokens: 16, max_tokens: 48}`: for exact arithmetic."""

    output_tokens: int = Field(default=16, ge=1, le=MAX_OUTPUT_TOKENS)

    def draw(self, random: Random, at_ns: int) -> Job:  # noqa: ARG002
        """Two draws: input and stream."""
        return self.job(random, lambda _: self.output_tokens)

    def always(self) -> Job | None:
        """Unless the prompts differ, or only some ask for a stream, or each has a workflow of its own."""
        same = self.input_tokens.is_constant and self.stream in (0, 1) and not self.new_workflows
        return self.draw(Random(0), 0) if same else None
