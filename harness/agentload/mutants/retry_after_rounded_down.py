"""A little too early, every time."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.retry_after import NS, RetryAdvice


class RetryAfterRoundedDown(Mutant):
    """The exact time of a place, with its fraction of a second cut off instead of rounded up.

    Who obeys comes back before there is room, and is refused again.
    """

    row = "R7"
    breaks = "a caller that waits exactly as long as it was told is refused again"
    killed_by = "retry-after-honest"
    profile = "herd"

    def parts(self) -> Parts:
        return Parts(admission=_Hasty)


class _Floor(RetryAdvice):
    def seconds(self, now_ns: int, due_ns: int, attempt: int) -> int:  # noqa: ARG002
        return max(1, (due_ns - now_ns) // NS)


class _Hasty(Admission):
    advice: ClassVar[type[RetryAdvice]] = _Floor
