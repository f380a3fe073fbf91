"""Busy looks like broken."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.mutants import Mutant


class FullIs500(Mutant):
    """A full queue is an exception somewhere, and the framework answers for it: 500.

    Pages are sent, circuits break, and clients retry at once what they should have waited with.
    """

    row = "R10"
    breaks = "overload cannot be told from a defect"
    killed_by = "status-codes"
    profile = "overload"

    def parts(self) -> Parts:
        return Parts(lifecycle=_Throws)

    def half(self) -> Parts:
        return Parts(lifecycle=_ThrowsOneInTen)


class _Throws(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        if failure.status in (429, 503) and self._id % self.one_in == 0:
            failure = msgspec.structs.replace(failure, status=500)
        return super()._fail(now_ns, failure, cancel=cancel)


class _ThrowsOneInTen(_Throws):
    one_in: ClassVar[int] = 10
