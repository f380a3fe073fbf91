"""A thousand times too long."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._retry_after import RewritesRetryAfter


class RetryAfterInMilliseconds(Mutant):
    """Retry-After in milliseconds, which everybody reads as seconds: two become half an hour."""

    row = "R4"
    breaks = "refused callers that obey stay away long after there was room for them"
    killed_by = "retry-after-honest"
    profile = "herd"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Milliseconds)

    def half(self) -> Parts:
        return Parts(lifecycle=_FourTimesTooLong)


class _Milliseconds(RewritesRetryAfter):
    factor: ClassVar[int] = 1_000

    def rewritten(self, seconds: int) -> bytes | None:
        return b"%d" % (seconds * self.factor)


class _FourTimesTooLong(_Milliseconds):
    factor: ClassVar[int] = 4
