"""What one request has been through: its waits, its calls to the provider, and what they cost. PURE."""

from __future__ import annotations

from agentload.gateway.envelope import Envelope
from agentload.gateway.failures import Failure
from agentload.gateway.protocol import Record
from agentload.model import Outcome
from agentload.scheduler.pool import Reservation


class Course:
    """Waits and calls in turn, usually one of each. A retried request waits and calls again."""

    __slots__ = (
        "_called_ns",
        "_calling_since_ns",
        "_envelope",
        "_input_tokens",
        "_output_tokens",
        "_reservation",
        "_waited_ns",
        "_waiting_since_ns",
        "calls",
        "failure",
        "told_ns",
        "waiting",
    )

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._waiting_since_ns = envelope.request.arrived_ns
        self._calling_since_ns: int | None = None
        """None while it waits."""
        self._waited_ns = self._called_ns = 0
        """In the waits and calls that are over."""
        self._input_tokens = self._output_tokens = 0
        """Of calls that were made again."""
        self._reservation: Reservation | None = None
        self.waiting = True
        """It is in the queue, for its first call or another one."""
        self.calls = 0
        """To the provider, the present one included."""
        self.failure: Failure | None = None
        """Of the last call that was made again."""
        self.told_ns: int | None = None
        """For how long the provider wanted no call then; None: it did not say."""

    @property
    def calling(self) -> bool:
        """A call has been begun and has not been given up for another one."""
        return self._calling_since_ns is not None

    def dispatched(self, now_ns: int, reservation: Reservation) -> None:
        """A wait is over, a call begins."""
        self._waited_ns += now_ns - self._waiting_since_ns
        self._calling_since_ns = now_ns
        self._reservation = reservation
        self.waiting = False
        self.calls += 1

    def waits_again(self, now_ns: int, used: tuple[int, int], failure: Failure, told_ns: int | None) -> None:
        """The call came to nothing; the request waits for another one. `used`: input and output tokens."""
        self._called_ns = self.called_ns(now_ns)
        self._calling_since_ns, self._waiting_since_ns = None, now_ns
        self._input_tokens += used[0]
        self._output_tokens += used[1]
        self.failure, self.told_ns = failure, told_ns
        self.waiting = True

    def not_retried(self) -> None:
        """It may not wait again: the call was the last one."""
        self.waiting = False

    def waited_ns(self, now_ns: int) -> int:
        """In the queue, before all calls together."""
        return self._waited_ns + (0 if self.calling else now_ns - self._waiting_since_ns)

    def called_ns(self, now_ns: int) -> int:
        """In all calls together."""
        since_ns = self._calling_since_ns
        return self._called_ns + (0 if since_ns is None else now_ns - since_ns)

    def record(
        self,
        now_ns: int,
        outcome: Outcome,
        status: int,
        reason: str,
        used: tuple[int, int],
        *,
        failed: bool,
        admitted: bool,
        wait_cause: str,
        retry_after_s: int | None,
    ) -> Record:
        """It has ended. `used`: tokens of the last call; `failed`: the provider is to blame."""
        request, reserved = self._envelope.request, self._reservation
        return Record(
            request.id,
            tenant=request.tenant,
            service_class=request.service_class,
            workflow=request.workflow,
            attempt=request.attempt,
            stream=self._envelope.call.stream,
            outcome=outcome,
            status=status,
            reason=reason,
            waited_ns=self.waited_ns(now_ns),
            upstream_ns=self.called_ns(now_ns),
            estimated_input_tokens=request.input_tokens,
            estimated_output_tokens=reserved.estimate.max_output_tokens if reserved else 0,
            reserved_units=reserved.units if reserved else 0.0,
            input_tokens=self._input_tokens + used[0],
            output_tokens=self._output_tokens + used[1],
            dispatched=self.calls > 0,
            upstream_attempts=self.calls,
            waiting=self.waiting,
            upstream_failed=failed,
            admitted=admitted,
            wait_cause=wait_cause,
            retry_after_s=retry_after_s,
            model=request.model,
            tool_calls=request.tool_calls,
            tool_seconds=request.tool_seconds,
        )
