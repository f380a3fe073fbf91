"""LangChain's `.with_retry()` around a chat model (read in langchain-core 1.8: `RunnableRetry`)."""

from __future__ import annotations

from random import Random

from agentload.behaviours._layered import LayeredClient
from agentload.behaviours._waits import exponential_jitter_s


class Langchain(LayeredClient):
    """`{kind: langchain, max_attempts: 3, sdk_retries: 2}`: 2^i + U(0, 1) s between tries of an SDK.

    Whatever the answer says; with the SDK's own two retries, nine attempts in all.
    """

    def wait_s(self, number: int, random: Random) -> float:
        return exponential_jitter_s(number, random)
