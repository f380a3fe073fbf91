"""When requests come: one arrival process per file.

An arrival process is told the window and handed its random source; it never reads a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agentload.errors import UsageError
from agentload.model import Spec
from agentload.registry import Seam

MIN_RATE = 1e-6
"""Requests per second: one in eleven days. Much less than that is no number to reckon gaps from."""
MAX_RATE = 100_000


def _no_trifle(rate: float) -> float:
    if rate < MIN_RATE:
        raise ValueError(f"must be at least {MIN_RATE:g}, got {rate:g}")
    return rate


Rate = Annotated[float, Field(gt=0, le=MAX_RATE), AfterValidator(_no_trifle)]
"""Requests per second, as parameters of arrival processes say it."""


class ArrivalProcess(BaseModel, ABC):
    """The contract. Parameters are pydantic fields (so that profiles are checked with file and line)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def times_ns(self, start_ns: int, end_ns: int, random: Random) -> list[int]:
        """Due times in [start_ns, end_ns), ascending. Uses `random.random()` only (stable across Pythons)."""

    def mean_count(self, seconds: float) -> float | None:  # noqa: ARG002
        """Expected arrivals in a window of so many seconds; None when it cannot be told beforehand."""
        return None

    def least_factor(self) -> float:
        """The smallest factor by which `scaled` leaves at least one request at a time."""
        return 0.0

    def scaled(self, factor: float) -> Self:  # noqa: ARG002
        """The process with `factor` times as many arrivals in any stretch of time, for `--scale`.

        What it says in seconds stays. Raises UsageError (a few words) where it cannot be.
        """
        raise UsageError("it does not say how it scales")


SEAM: Seam[ArrivalProcess] = Seam(__name__, ArrivalProcess)


def make(spec: Spec) -> ArrivalProcess:
    """The arrival process a profile asked for. Raises UsageError or pydantic.ValidationError."""
    return SEAM.get(spec.kind).model_validate(spec.params)
