"""@anthropic-ai/sdk for JavaScript, today (read in 1.14)."""

from __future__ import annotations

from agentload.behaviours import Attempt
from agentload.behaviours._stainless import StainlessClient, javascript_told_s
from agentload.behaviours.openai_js import LONGEST_TIMER_S


class AnthropicJs(StainlessClient):
    """`{kind: anthropic-js, max_retries: 2}`: waits however long Retry-After says, up to 24 days."""

    longest_wait_s = LONGEST_TIMER_S

    def obeyed_s(self, attempt: Attempt, told_s: float | None) -> float | None:  # noqa: ARG002
        return super().obeyed_s(attempt, javascript_told_s(attempt))
