"""What many gateways do when a call to the provider fails: call again, at once, past their own limiter."""

from __future__ import annotations

from typing import ClassVar

from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle, State, Step
from agentload.gateway.protocol import StartUpstream


class NaiveRetry(RequestLifecycle):
    """Calls the provider again when it failed or refused, as long as the client has been sent nothing.

    The reservation of the first call is kept, so nothing more is asked of admission; and what the provider
    said about when to come back is forgotten.
    """

    retries: ClassVar[int] = 1
    """Calls beyond the first."""
    tried = 0

    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        before_any_answer = self.state in (State.CALLING, State.HOLDING)
        if not (failure.upstream and before_any_answer and not cancel and self.tried < self.retries):
            return super()._fail(now_ns, failure, cancel=cancel)
        self.tried += 1
        self.state = State.CALLING
        self._reply = None
        self._arm(now_ns)
        return [StartUpstream(self._id, self._call, self._limits.connect_ns(now_ns))]
