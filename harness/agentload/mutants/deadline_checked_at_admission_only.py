"""It could have been done in time when it came; by now it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission, Request
from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.deadlines import Deadlines
from agentload.scheduler.tenants import Ticket


class DeadlineCheckedAtAdmissionOnly(Mutant):
    """What was let into the queue is begun when its turn comes, as long as its deadline has not passed.

    Dropping only the already expired still collapses: an overloaded queue then serves nothing but what
    expires in service.
    """

    row = "D4"
    breaks = "slots and tokens go into calls that are cut off before they are done"
    killed_by = "deadline"
    profile = "deadlines"

    def parts(self) -> Parts:
        return Parts(admission=_OnlyExpiry)


class _Lenient(Deadlines):
    waits = False
    """Whether it is about one that waits: only newcomers are asked how long they would take."""

    def service_ns(self, now_ns: int, request: Request, cls: ServiceClass) -> int:
        return 0 if self.waits else super().service_ns(now_ns, request, cls)

    def leave_ns(self, now_ns: int, ticket: Ticket) -> int:
        self.waits = True
        leave_ns = super().leave_ns(now_ns, ticket)
        self.waits = False
        return leave_ns


class _OnlyExpiry(Admission):
    deadlines: ClassVar[type[Deadlines]] = _Lenient

    def _dispatch(self, now_ns: int) -> None:
        self._leniently(super()._dispatch, now_ns)

    def _alarm(self, now_ns: int, ticket: Ticket) -> None:
        self._leniently(super()._alarm, now_ns, ticket)

    def _leniently(self, do: Callable[..., None], *about: object) -> None:
        deadlines = cast("_Lenient", self._deadlines)
        deadlines.waits = True
        do(*about)
        deadlines.waits = False
