"""Somebody else's answer."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.answers import Answer
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.mutants import Mutant


class AnswersMixedUp(Mutant):
    """One plain answer in fifty is the one that was given before it: another tenant's, maybe.

    A cache whose key is too short does that, and so does a connection that is used again after its request
    was cancelled: in March 2023 a large provider showed users the titles of other users' conversations.
    """

    row = "–"
    breaks = "a tenant reads what was meant for another"
    killed_by = "own-answer"
    profile = "steady"

    def parts(self) -> Parts:
        """Every gateway has a memory of its own."""
        return Parts(lifecycle=type("_Remembers", (_Mixes,), {"before": [None]}))


class _Mixes(RequestLifecycle):
    before: ClassVar[list[Answer | None]]
    """The last answer given."""

    def _passed_on(self, now_ns: int) -> Answer:
        mine = super()._passed_on(now_ns)
        before, self.before[0] = self.before[0], mine
        return before if before is not None and self._id % 50 == 0 else mine
