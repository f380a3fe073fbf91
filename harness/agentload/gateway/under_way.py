"""One client request under way: what it holds, how long it may take, and every way to end it. PURE.

Which of them an event leads to is `lifecycle.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import TypeAlias

from agentload.gateway import answers, failures
from agentload.gateway.answers import Answer
from agentload.gateway.comeback import Comeback
from agentload.gateway.course import Course
from agentload.gateway.envelope import Envelope
from agentload.gateway.failures import Failure
from agentload.gateway.headers import Headers
from agentload.gateway.patience import Patience
from agentload.gateway.protocol import (
    Action,
    CancelUpstream,
    Effect,
    EndStream,
    FailStream,
    Progress,
    ProviderRefused,
    Respond,
    Retry,
    Settle,
    Withdraw,
)
from agentload.gateway.reply import UpstreamReply
from agentload.gateway.retry_budget import RetryBudget
from agentload.gateway.settings import GatewaySettings
from agentload.model import Outcome
from agentload.scheduler.config import RetryConfig

Step: TypeAlias = list[Action | Effect]


class State(Enum):
    """Where a request is."""

    WAITING = "waiting"
    CALLING = "calling"
    HOLDING = "holding"
    STREAMING = "streaming"
    ENDED = "ended"


class RequestUnderWay:
    """One client request, in one of its states.

    `timer_ns` is the instant at which it wants to hear TimedOut: None while it waits (the scheduler watches
    its deadline then) and once it is over.
    """

    def __init__(
        self,
        envelope: Envelope,
        settings: GatewaySettings,
        retry: RetryConfig,
        random: Random,
        retries: RetryBudget | None = None,
    ) -> None:
        """`retries`: what all requests together may call again; None: no call is made again."""
        self.request = envelope.request
        self.state = State.WAITING
        self.timer_ns: int | None = None
        self.wait_cause = ""
        """Why it waited long, or was refused (`WaitCause`): told before the event that says so."""
        self._admitted = True
        self._retry_after_s: int | None = None
        self._id = envelope.request.id
        self._call = envelope.call
        self._settings = settings
        self._retry = retry
        self._random = random
        self._retries = retries
        self._course = Course(envelope)
        self._held = False
        """A reservation is held, and must be released."""
        self._patience: Patience | None = None
        self._reply: UpstreamReply | None = None
        self._reported_tokens = 0
        self._fallback: str | None = None
        """The model that is called instead of the one asked for."""
        self.comeback: Comeback | None = None
        """Knows when a place is free. None: clients are told what the provider says, or the usual base."""

    # ----------------------------------------------------------------- how to end

    def _fail(self, now_ns: int, failure: Failure, *, cancel: bool = False) -> Step:
        """Call again if that is possible, or else end."""
        told_ns = answers.retry_after_ns(self._reply.headers) if self._reply and failure.refused else None
        step: Step = [CancelUpstream(self._id)] if cancel else []
        refused = [ProviderRefused(self._id, told_ns, failure.by_rate)] if failure.refused else []
        # Not what was cancelled: its time was up, and the closed call's last words may still be on their way.
        if not cancel and failure.again and self._may_call_again(now_ns, told_ns or 0):
            return [*refused, self._call_again(now_ns, failure, told_ns)]
        return step + self._fail_for_good(now_ns, failure, told_ns, refused)

    def _may_call_again(self, now_ns: int, told_ns: int) -> bool:
        """Nothing was sent to the client, the deadline leaves time, and the budget has something left."""
        retries, deadline_ns = self._retries, self.request.deadline_ns
        return (
            self.state in (State.CALLING, State.HOLDING)
            and retries is not None
            and self._course.calls < self._settings.upstream_retries.max_attempts
            and (deadline_ns is None or now_ns + told_ns < deadline_ns)
            and retries.take()
        )

    def _call_again(self, now_ns: int, failure: Failure, told_ns: int | None) -> Retry:
        """Back to where it came from."""
        used = self._used(failure)
        self._course.waits_again(now_ns, used, failure, told_ns)
        self.state, self.timer_ns = State.WAITING, None
        self._held, self._reply, self._reported_tokens = False, None, 0
        return Retry(self._id, *used)

    def _fail_for_good(
        self, now_ns: int, failure: Failure, told_ns: int | None, refused: Sequence[ProviderRefused] = ()
    ) -> Step:
        """Say so to the client in the way that is still open, release, record."""
        if self.state is State.STREAMING:
            status = self._answer.status
            last = answers.failure_event(self._call.dialect, failure, self._answer.events)
            told: Action = FailStream(self._id, last)
        else:
            status = failure.status
            told = self._whole(self._told(now_ns, failure, told_ns))
        return [told, *refused, *self._end(now_ns, failure.outcome, status, failure.reason, failure)]

    def _respond(self, now_ns: int, answer: Answer, outcome: Outcome, reason: str) -> Step:
        return [self._whole(answer), *self._end(now_ns, outcome, answer.status, reason)]

    def _complete(self, now_ns: int) -> Step:
        return [EndStream(self._id), *self._end(now_ns, Outcome.ANSWERED, self._answer.status, "ok")]

    def _abandoned(self, now_ns: int, status: int) -> Step:
        """Nobody is left to answer: the scheduler forgets the request, and charges what has been produced."""
        step: Step = [Withdraw(self._id)]
        if self._reply is not None and self._reply.output_tokens > self._reported_tokens:
            step.insert(0, Progress(self._id, self._reply.output_tokens))
        self._held = False
        return step + self._end(now_ns, Outcome.ABANDONED, status, "client_left")

    def _end(
        self, now_ns: int, outcome: Outcome, status: int, reason: str, failure: Failure | None = None
    ) -> Step:
        """The only way into ENDED."""
        self.state = State.ENDED
        self.timer_ns = None
        used = self._used(failure)
        step: Step = [Settle(self._id, *used, outcome is Outcome.ANSWERED)] if self._held else []
        self._held = False
        failed = failure is not None and failure.upstream
        record = self._course.record(
            now_ns,
            outcome,
            status,
            reason,
            used,
            failed=failed,
            admitted=self._admitted,
            wait_cause=self.wait_cause,
            retry_after_s=self._retry_after_s,
        )
        return [*step, record]

    # ----------------------------------------------------------------- what the client is told

    def _told(self, now_ns: int, failure: Failure, pause_ns: int | None) -> Answer:
        """What became of it, and how to come back where that is of use."""
        request, course = self.request, self._course
        upstream_ns = course.called_ns(now_ns) if course.calls else None
        if self.comeback is None:
            wait_s = failures.retry_after_s(failure, pause_ns, self._retry, self._random)
        else:
            wait_s = self.comeback.seconds(now_ns, failure, request, pause_ns)
        envelope = None
        if wait_s is not None and self.comeback is not None:
            envelope = self.comeback.envelope(now_ns, request, wait_s)
        self._retry_after_s = wait_s
        waited_ns = course.waited_ns(now_ns)
        return answers.of_failure(
            failure, wait_s, waited_ns, upstream_ns, self.wait_cause, envelope, self._call.dialect
        )

    def _whole(self, answer: Answer) -> Respond:
        return Respond(self._id, answer.status, self._marked(answer.headers), answer.body)

    def _marked(self, headers: Headers) -> Headers:
        """`X-Model-Fallback`, where another model than the one asked for was called."""
        if self._fallback is None:
            return headers
        return (*headers, (b"x-model-fallback", self._fallback.encode()))

    # ----------------------------------------------------------------- what it has cost

    def _used(self, failure: Failure | None) -> tuple[int, int]:
        """What the call has cost; nothing when the provider has done no work."""
        return self._tokens() if failure is None or failure.worked else (0, 0)

    def _tokens(self) -> tuple[int, int]:
        """Input and output tokens of the call: the provider's count, else the estimate and what was seen."""
        if not self._course.calling:
            return 0, 0
        if self._reply is None or self._reply.usage is None:
            return self.request.input_tokens, self._reply.output_tokens if self._reply else 0
        return self._reply.usage.input_tokens, self._reply.output_tokens

    # ----------------------------------------------------------------- times

    def _arm(self, now_ns: int) -> None:
        """Set the timer for the present state."""
        if self._reply is not None and self._reply.terminal:
            self.timer_ns = self._limits.close_ns(now_ns)
        elif self._awaits_first_event:
            self.timer_ns = self._limits.first_event_ns()
        elif self._reply is None:
            self.timer_ns = self._limits.limit_ns
        else:
            self.timer_ns = self._limits.silence_ns(now_ns)

    @property
    def _awaits_first_event(self) -> bool:
        """A stream was asked for and nothing of it has come. (A plain answer comes when it is whole.)"""
        if self._reply is None:
            return self._call.stream
        return self._reply.is_stream and self.state is not State.STREAMING

    @property
    def _answer(self) -> UpstreamReply:
        """The provider's answer, in the states that have one."""
        assert self._reply is not None
        return self._reply

    @property
    def _limits(self) -> Patience:
        """How long the call may take, in the states that have one."""
        assert self._patience is not None
        return self._patience
