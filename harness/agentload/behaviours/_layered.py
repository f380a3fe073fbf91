"""A retrying wrapper around an official SDK that retries by itself: the tries multiply.

Each try of the wrapper is a call of the SDK, which makes up to `1 + sdk_retries` attempts of it.
"""

from __future__ import annotations

from abc import abstractmethod
from random import Random
from typing import Any

from pydantic import Field, PrivateAttr

from agentload.behaviours import Attempt, Behaviour
from agentload.behaviours.openai_sdk import OpenaiSdk
from agentload.model import Arrival


class LayeredClient(Behaviour):
    """The wrapper retries whatever the SDK raises in the end, refusals that no retry can help included.

    A stream that has begun is in the caller's hands: nobody retries it.
    """

    timeout_s: float = Field(default=600.0, gt=0, le=3600)
    max_attempts: int = Field(default=3, ge=1, le=255)
    """Tries of the wrapper."""
    sdk_retries: int = Field(default=2, ge=0, le=254)
    """Retries of the SDK within each; 0 where they are switched off."""

    _sdk: OpenaiSdk = PrivateAttr()
    _tries: int = PrivateAttr(default=1)
    """Of the wrapper, the present one included."""
    _retries: int = PrivateAttr(default=0)
    """Of the SDK, within the present try."""

    def model_post_init(self, context: Any, /) -> None:
        """pydantic calls it once the fields are there."""
        super().model_post_init(context)
        self._sdk = OpenaiSdk(max_retries=self.sdk_retries)

    @abstractmethod
    def wait_s(self, number: int, random: Random) -> float:
        """The wrapper's wait after try `number`, which counts from 0."""

    def for_request(self, seed: int, arrival: Arrival) -> Behaviour:  # noqa: ARG002
        """A copy that counts the tries of one request; the budget stays shared."""
        return self.model_copy()

    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """The SDK's wait while it retries, else the wrapper's."""
        delay_s = self._sdk.delay_s(attempt, self._retries, random)
        if delay_s is not None:
            self._retries += 1
            return delay_s
        if attempt.streamed or self._tries >= self.max_attempts:
            return None
        self._tries, self._retries = self._tries + 1, 0
        return self.wait_s(self._tries - 2, random)
