"""429, and not a word on when to come back."""

from __future__ import annotations

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._retry_after import RewritesRetryAfter


class NoRetryAfter(Mutant):
    """Refusals carry no Retry-After (or say it in prose only): each client guesses."""

    row = "R1"
    breaks = "a refused caller is not told when to come back"
    killed_by = "retry-after-present"
    profile = "noisy-neighbor"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Silent)

    def half(self) -> Parts:
        return Parts(lifecycle=_SilentOneInTen)


class _Silent(RewritesRetryAfter):
    def rewritten(self, seconds: int) -> bytes | None:  # noqa: ARG002
        return None


class _SilentOneInTen(RewritesRetryAfter):
    def rewritten(self, seconds: int) -> bytes | None:
        return None if self._id % 10 == 0 else super().rewritten(seconds)
