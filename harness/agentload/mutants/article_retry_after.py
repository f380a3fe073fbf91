"""`retry_after_seconds` as published in "The Queue Is Part of the Agent"."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.retry_after import RetryAdvice


class ArticleRetryAfter(Mutant):
    """Exponential backoff by attempt, 30 % jitter, and no look at the queue.

    `int()` leaves a first attempt with one or two seconds, so a herd comes back on two ticks; and whether
    there is room by then is left to chance.
    """

    row = "R9"
    breaks = "callers are told a number that has nothing to do with when there is room"
    killed_by = "retry-after-honest"
    profile = "herd"

    def parts(self) -> Parts:
        return Parts(admission=_Published)


class _AsPublished(RetryAdvice):
    def seconds(self, now_ns: int, due_ns: int, attempt: int) -> int:  # noqa: ARG002
        exponential = min(120.0, 2.0 * (2 ** min(attempt, 8)))
        return max(1, int(self._random.uniform(exponential * 0.7, exponential * 1.3)))


class _Published(Admission):
    advice: ClassVar[type[RetryAdvice]] = _AsPublished
