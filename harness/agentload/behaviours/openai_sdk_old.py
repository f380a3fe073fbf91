"""openai-python before 2.52, and anthropic before 1.6: what most deployed clients still run."""

from __future__ import annotations

from agentload.behaviours._stainless import StainlessClient


class OpenaiSdkOld(StainlessClient):
    """`{kind: openai-sdk-old, max_retries: 2}`: obeys up to 60 s; told more, it comes back early."""

    longest_wait_s = 60.0
