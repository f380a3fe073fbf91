"""anthropic-python, today."""

from __future__ import annotations

from agentload.behaviours._stainless import StainlessClient


class AnthropicSdk(StainlessClient):
    """`{kind: anthropic-sdk, max_retries: 2}`: waits however long Retry-After says (1.6 and later)."""

    longest_wait_s = float("inf")
