"""openai-python, today."""

from __future__ import annotations

from agentload.behaviours._stainless import StainlessClient


class OpenaiSdk(StainlessClient):
    """`{kind: openai-sdk, max_retries: 2}`: obeys up to 120 s (since 2.52), gives up beyond (since 3.9)."""

    longest_wait_s = 120.0
    gives_up_beyond = True
