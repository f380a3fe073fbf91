"""Retry-After: 1, whatever the queue looks like."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.retry_after import RetryAdvice


class RetryAfterAlwaysOne(Mutant):
    """A constant: the thousandth refused caller is told the same second as the first."""

    row = "R9"
    breaks = "callers are told to come back when there is no room for them yet"
    killed_by = "retry-after-honest"
    profile = "herd"

    def parts(self) -> Parts:
        return Parts(admission=_InASecond)


class _One(RetryAdvice):
    def seconds(self, now_ns: int, due_ns: int, attempt: int) -> int:  # noqa: ARG002
        return 1


class _InASecond(Admission):
    advice: ClassVar[type[RetryAdvice]] = _One
