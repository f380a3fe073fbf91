"""`Retry-After: 5s`."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._retry_after import RewritesRetryAfter


class RetryAfterWithUnit(Mutant):
    """Retry-After written for people: "5s", which RFC 9110 does not know and parsers drop."""

    row = "R3"
    breaks = "clients cannot read when to come back"
    killed_by = "retry-after-syntax"
    profile = "noisy-neighbor"

    def parts(self) -> Parts:
        return Parts(lifecycle=_ForPeople)


class _ForPeople(RewritesRetryAfter):
    def rewritten(self, seconds: int) -> bytes | None:
        return b"%ds" % seconds
