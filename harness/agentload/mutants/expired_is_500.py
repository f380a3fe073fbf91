"""Its time is over, and that is called an internal error."""

from __future__ import annotations

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.mutants import Mutant


class ExpiredIs500(Mutant):
    """A deadline that passes in the queue or during the call surfaces as an exception: 500, internal_error.

    The client cannot tell it from a crash, nobody can count it, and what must not be retried is retried.
    """

    row = "D3"
    breaks = "a deadline that has passed cannot be told from a crash"
    killed_by = "nested-timeouts"
    profile = "deadlines"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Unhandled)


class _Unhandled(RequestLifecycle):
    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        if failure.status == 504:
            failure = msgspec.structs.replace(failure, status=500, reason="internal_error", may_retry=True)
        return super()._fail(now_ns, failure, cancel=cancel)
