"""Knocking keeps the door shut."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission, Refused, Request
from agentload.scheduler.work import provider_tokens


class RefusalsUseUpTheLimit(Mutant):
    """A refused request is counted against the limit that it was refused by.

    A sliding log that also writes down what it rejects never lets a persistent client in again ("the API is
    blocked forever"), and under a flood nobody else either.
    """

    row = "L13"
    breaks = "while a flood is refused, hardly anything is served"
    killed_by = "overload-goodput"
    profile = "overload"

    def parts(self) -> Parts:
        return Parts(admission=_CountsRefusals)

    def half(self) -> Parts:
        return Parts(admission=_CountsOneInTen)


class _CountsRefusals(Admission):
    one_in: ClassVar[int] = 1

    def submit(self, now_ns: int, request: Request) -> None:
        super().submit(now_ns, request)
        last = self._events[-1] if self._events else None
        if isinstance(last, Refused) and last.request is request and request.id % self.one_in == 0:
            self._limits.take(now_ns, provider_tokens(request))


class _CountsOneInTen(_CountsRefusals):
    one_in: ClassVar[int] = 10
