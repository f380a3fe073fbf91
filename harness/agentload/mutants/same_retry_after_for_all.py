"""Everybody comes back in the same second."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._configs import with_retry
from agentload.scheduler.admission import Admission
from agentload.scheduler.retry_after import RetryAdvice


class SameRetryAfterForAll(Mutant):
    """Every refused caller is told when the next place is free, with no jitter: a herd.

    Official SDKs obey to the millisecond. Nineteen of twenty waits in one log were exactly 600.0 s.
    """

    row = "R8"
    breaks = "all that were refused come back at the same instant, and are refused again"
    killed_by = "retry-after-spread"
    profile = "herd"

    def parts(self) -> Parts:
        return Parts(gateway_config=lambda config: with_retry(config, spread="same"))

    def half(self) -> Parts:
        """Places are handed out one by one, but told in steps of five seconds."""
        return Parts(admission=_InSteps)


class _FiveSeconds(RetryAdvice):
    def seconds(self, now_ns: int, due_ns: int, attempt: int) -> int:
        return -(-super().seconds(now_ns, due_ns, attempt) // 5) * 5


class _InSteps(Admission):
    advice: ClassVar[type[RetryAdvice]] = _FiveSeconds
