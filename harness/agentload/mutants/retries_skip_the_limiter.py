"""The limiter lets one call through, and the retry layer makes three of it."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._naive_retry import NaiveRetry
from agentload.mutants._scenes import FAILING_PROVIDER


class RetriesSkipTheLimiter(Mutant):
    """A failed call is made again directly, without passing admission a second time.

    The retry path that was written later than the limiter: a limit of one call a day was passed many times.
    """

    row = "L20"
    breaks = "when calls fail, the provider is offered more than its limit"
    killed_by = "provider-limit"
    profile = FAILING_PROVIDER

    def parts(self) -> Parts:
        return Parts(lifecycle=_TwoMore)


class _TwoMore(NaiveRetry):
    retries: ClassVar[int] = 2
