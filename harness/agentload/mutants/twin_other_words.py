"""A twin: other words, other order of header fields, one field more."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.gateway.answers import Answer
from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle, Step
from agentload.gateway.protocol import Respond
from agentload.mutants import Mutant


class TwinOtherWords(Mutant):
    """What people read, and what HTTP says has no order, is otherwise; what machines act on is not."""

    cosmetic: ClassVar[bool] = True

    def parts(self) -> Parts:
        return Parts(lifecycle=_Rephrased)


class _Rephrased(RequestLifecycle):
    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        politely = msgspec.structs.replace(failure, message=f"We are sorry: {failure.message}.")
        return super()._fail(now_ns, politely, cancel=cancel)

    def _whole(self, answer: Answer) -> Respond:
        headers = (*reversed(answer.headers), (b"x-served-by", b"twin"))
        return super()._whole(Answer(answer.status, headers, answer.body))
