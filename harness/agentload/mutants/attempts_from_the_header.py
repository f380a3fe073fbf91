"""Which attempt is it? Whichever the client says."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._door_scenes import RETRIES
from agentload.scheduler.admission import Admission
from agentload.scheduler.attempts import AttemptBook, Tried
from agentload.scheduler.work import Request


class AttemptsFromTheHeader(Mutant):
    """A caller's own count of its attempts is believed, so one that always says 0 never runs out of them.

    Work that can never succeed then comes back for ever: 1,427 deliveries of one message were counted.
    """

    row = "D9"
    breaks = "a request that always fails is tried without end"
    killed_by = "retry-identity"
    profile = RETRIES

    def parts(self) -> Parts:
        return Parts(admission=_Trusting)


class _Believes(AttemptBook):
    def recall(self, request: Request) -> Tried | None:
        said = request.attempt
        tried = super().recall(request)
        request.attempt = said
        return tried


class _Trusting(Admission):
    attempts: ClassVar[type[AttemptBook]] = _Believes
