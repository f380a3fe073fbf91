"""The provider broke off; the client is told that it was the end."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.messages import Frame
from agentload.drivers.simulated.parts import Parts
from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import EndStream, FailStream, ForwardData, UpstreamRead
from agentload.mutants import Mutant
from agentload.mutants._scenes import FAILING_PROVIDER


class BrokenStreamEndsWell(Mutant):
    """After an error in the middle of a stream the gateway closes it as if all had been said.

    A deadline became `finish_reason: length` after one token, with status 200; no client can see through it.
    """

    row = "R12"
    breaks = "half an answer is taken for a whole one"
    killed_by = "stream-integrity"
    profile = FAILING_PROVIDER

    def parts(self) -> Parts:
        return Parts(lifecycle=_SaysDone)

    def half(self) -> Parts:
        return Parts(lifecycle=_SaysDoneOneInTen)


class _SaysDone(RequestLifecycle):
    one_in: ClassVar[int] = 1
    done = b"data: [DONE]\n\n"

    def handle(self, now_ns: int, event: object) -> Step:
        if isinstance(event, UpstreamRead):  # the simulator's streams are frames
            self.done = Frame(seq=0, tokens=0, done=True).encode()
        return super().handle(now_ns, event)

    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        lies = self.state is State.STREAMING and self._id % self.one_in == 0
        step = super()._fail(now_ns, failure, cancel=cancel)
        if not lies:
            return step
        said = [one for one in step if not isinstance(one, FailStream)]
        return [ForwardData(self._id, self.done), EndStream(self._id), *said]


class _SaysDoneOneInTen(_SaysDone):
    one_in: ClassVar[int] = 10
