"""A twin: the questions at the door, asked in another order."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission, Refused, Request


class TwinOtherOrder(Mutant):
    """Whether a request is too wide is asked first, before shutdowns and attempts."""

    cosmetic: ClassVar[bool] = True

    def parts(self) -> Parts:
        return Parts(admission=_WidthFirst)


class _WidthFirst(Admission):
    def _refused_at_sight(self, now_ns: int, request: Request) -> Refused | None:
        cls = self._classes.get(request.service_class)
        if cls is not None and self._door.too_wide(request, cls):
            return self._door.refused_as_too_wide(request, cls)
        return super()._refused_at_sight(now_ns, request)
