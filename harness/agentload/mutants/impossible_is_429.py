"""Too large for ever, and told to come back in a second."""

from __future__ import annotations

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.mutants import Mutant
from agentload.scheduler.reasons import Reason


class ImpossibleIs429(Mutant):
    """A request that can never fit is refused like one that may fit later.

    Both end in the same branch of the limiter; every official SDK then sends it again, and again.
    """

    row = "L24"
    breaks = "clients retry for ever what can never be served"
    killed_by = "status-codes"
    profile = "long-jobs"

    def parts(self) -> Parts:
        return Parts(lifecycle=_ComeAgain)


class _ComeAgain(RequestLifecycle):
    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        if failure.reason == Reason.TOO_WIDE:
            failure = msgspec.structs.replace(failure, status=429, may_retry=True, retry_after_s=1)
        return super()._fail(now_ns, failure, cancel=cancel)
