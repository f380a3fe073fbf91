"""Whoever comes first is served first, whatever it was told."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._door_scenes import RETRIES
from agentload.scheduler.admission import Admission
from agentload.scheduler.attempts import Tried
from agentload.scheduler.door import Door
from agentload.scheduler.work import Request


class EarlyRetriesServed(Mutant):
    """Retry-After is advice and nothing more: who ignores it takes the place of one who obeys.

    A `not_before` that only well-behaved clients honour rewards the others.
    """

    row = "–"
    breaks = "clients that come back too early get the places that others were promised"
    killed_by = "retry-identity"
    profile = RETRIES

    def parts(self) -> Parts:
        return Parts(admission=_Welcoming)


class _ForgetsItsPromises(Door):
    def _not_before_ns(self, request: Request, tried: Tried | None) -> int | None:  # noqa: ARG002
        return None


class _Welcoming(Admission):
    door: ClassVar[type[Door]] = _ForgetsItsPromises
