"""The client has gone; the provider goes on writing, and billing."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import ClientLeft
from agentload.mutants import Mutant
from agentload.mutants._scenes import IMPATIENCE


class UpstreamOutlivesClient(Mutant):
    """A disconnect is not passed on: the call to the provider runs to its end, for nobody.

    The most often reported defect of LLM proxies; servers that do not listen while they write never know.
    """

    row = "D1"
    breaks = "tokens are produced, and slots held, for clients that have left"
    killed_by = "cancel-upstream"
    profile = IMPATIENCE

    def parts(self) -> Parts:
        return Parts(lifecycle=_Shielded)

    def half(self) -> Parts:
        return Parts(lifecycle=_ShieldedOneInTen)


class _Shielded(RequestLifecycle):
    one_in: ClassVar[int] = 1

    def handle(self, now_ns: int, event: object) -> Step:
        calling = self.state in (State.CALLING, State.HOLDING, State.STREAMING)
        if isinstance(event, ClientLeft) and calling and self._id % self.one_in == 0:
            return []
        return super().handle(now_ns, event)


class _ShieldedOneInTen(_Shielded):
    one_in: ClassVar[int] = 10
