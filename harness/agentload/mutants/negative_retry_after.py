"""Come back a second ago."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._retry_after import RewritesRetryAfter


class NegativeRetryAfter(Mutant):
    """Retry-After is a difference of two clocks, and nobody looked at its sign.

    Some SDKs took it for "at once", one crashed on it.
    """

    row = "R2"
    breaks = "refused callers come back at once, or not at all"
    killed_by = "retry-after-syntax"
    profile = "noisy-neighbor"

    def parts(self) -> Parts:
        return Parts(lifecycle=_InThePast)


class _InThePast(RewritesRetryAfter):
    def rewritten(self, seconds: int) -> bytes | None:
        return b"-%d" % seconds
