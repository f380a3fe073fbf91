"""What a client does when it is refused or waits: one behaviour per file.

A behaviour is pure: it is told what happened and handed its random source, and says when to try again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from agentload.model import Outcome, Spec
from agentload.registry import Seam


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What a behaviour may look at after an attempt has ended without an answer."""

    number: int
    """0 for the first attempt: the number of retries already taken."""
    outcome: Outcome
    status: int
    """0 when no status arrived (connection error, timeout)."""
    retry_after_s: float | None
    """Parsed Retry-After (delay-seconds or HTTP-date); floats, zero and negatives as sent."""
    retry_after_ms: float | None = None
    """The `retry-after-ms` header, where sent; the official SDKs prefer it."""
    should_retry: bool | None = None
    """The `x-should-retry` header, where sent."""
    streamed: bool = False
    """True once any token of this attempt has arrived: no SDK retries then."""


class Behaviour(BaseModel, ABC):
    """The contract."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    draws: ClassVar[bool] = True
    """False where `random` is never used: seeding one for every refused request is not free."""

    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Total time the client waits for one attempt before it leaves."""

    @abstractmethod
    def retry_delay_s(self, attempt: Attempt, random: Random) -> float | None:
        """Seconds to wait before the next attempt, or None to give up."""


SEAM: Seam[Behaviour] = Seam(__name__, Behaviour)


def make(spec: Spec) -> Behaviour:
    """The behaviour a profile asked for. Raises UsageError or pydantic.ValidationError."""
    return SEAM.get(spec.kind).model_validate(spec.params)
