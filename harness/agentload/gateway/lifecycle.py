"""One client request, from admission to its end, as an explicit state machine. PURE.

    WAITING ──Dispatched──> CALLING ──UpstreamHeaders──> HOLDING ──first event──> STREAMING
       ├───────<──Retry──<─────┼──────────<──Retry──<───────┤                        │
       └───────────────────────┴──────────> ENDED <─────────┴────────────────────────┘

WAITING: in the scheduler's queue. CALLING: a reservation is held and the provider has been called, nothing
has come back. HOLDING: the provider's status is known, the client has been sent nothing yet (plain bodies
are held until they are whole, streams until their first event), so any failure can still be answered with
an honest status. STREAMING: the client has a 200, so a failure can only be said inside the stream.

A call that failed before that may be made again, within the budget of all requests (`retry_budget`). The
reservation is given back and the request waits like any other: a retry passes the limiter, keeps its class,
tenant and deadline, and stays away for as long as the provider said.

Three rules hold in every state, and are property-tested: every reservation is released exactly once; a client
is answered at most once; every request ends with exactly one Record. Events that a state does not expect
are late news of something that was ended already (a chunk that was under way when the client left), and are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Any, ClassVar, TypeAlias

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
    ClientLeft,
    Effect,
    EndStream,
    FailStream,
    ForwardData,
    ForwardHeaders,
    NotRetried,
    Progress,
    ProviderAccepted,
    ProviderRefused,
    Respond,
    Retry,
    Settle,
    StartUpstream,
    Stop,
    TimedOut,
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
    UpstreamRead,
    Withdraw,
)
from agentload.gateway.reply import UpstreamReply
from agentload.gateway.retry_budget import RetryBudget
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.usage import Reading
from agentload.model import Outcome
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.events import Dispatched, Expired, Refused
from agentload.scheduler.reasons import Reason

PROGRESS_TOKENS = 128
"""Output tokens between two reports to the scheduler, which charges the overrun while it happens."""

Step: TypeAlias = list[Action | Effect]


class State(Enum):
    """Where a request is."""

    WAITING = "waiting"
    CALLING = "calling"
    HOLDING = "holding"
    STREAMING = "streaming"
    ENDED = "ended"


class RequestLifecycle:
    """One client request.

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

    def handle(self, now_ns: int, event: object) -> Step:
        """Take one event; what is to be done now, in order."""
        step = self._STEPS[self.state].get(type(event))
        return step(self, now_ns, event) if step is not None else []

    # ----------------------------------------------------------------- waiting

    def _not_retried(self, now_ns: int, _: NotRetried) -> Step:
        """The failure stands after all."""
        course = self._course
        assert self._retries is not None
        assert course.failure is not None
        self._retries.give_back()
        course.not_retried()
        return self._fail_for_good(now_ns, course.failure, course.told_ns)

    def _decided_against(self, now_ns: int, event: Refused | Expired) -> Step:
        self._admitted = isinstance(event, Expired) or event.reason is Reason.EVICTED
        return self._fail(now_ns, failures.of_decision(event))

    def _left_queue(self, now_ns: int, _: ClientLeft) -> Step:
        return self._abandoned(now_ns, 0)

    def _stopped_waiting(self, now_ns: int, _: Stop) -> Step:
        return [Withdraw(self._id), *self._fail(now_ns, failures.SHUTTING_DOWN)]

    def _dispatched(self, now_ns: int, event: Dispatched) -> Step:
        self._course.dispatched(now_ns, event.reservation)
        if self._retries is not None and self._course.calls == 1:
            self._retries.earn()
        self._held = True
        self.state = State.CALLING
        patience = self._patience = Patience(self._settings, now_ns, self.request.deadline_ns)
        if patience.limit_ns <= now_ns:
            return self._fail(now_ns, failures.DEADLINE_BEFORE_CALL)
        self._arm(now_ns)
        fallback = self._fallback = event.reservation.fallback_model
        call = self._call if fallback is None else self._call.to(fallback)
        return [StartUpstream(self._id, call, patience.connect_ns(now_ns))]

    # ----------------------------------------------------------------- calling

    def _headers(self, now_ns: int, event: UpstreamHeaders) -> Step:
        self.state = State.HOLDING
        self._reply = UpstreamReply(
            event.status,
            event.headers,
            asked_for_stream=self._call.stream,
            hide_usage=self._call.hide_usage,
            max_bytes=self._settings.max_answer_bytes,
            dialect=self._call.dialect,
        )
        self._arm(now_ns)
        return [ProviderAccepted(self._id)] if self._reply.ok else []

    def _call_failed(self, now_ns: int, event: UpstreamFailed) -> Step:
        return self._fail(now_ns, failures.BY_KIND[event.kind])

    def _call_ended(self, now_ns: int, _: UpstreamEnded) -> Step:
        return self._fail(now_ns, failures.TRUNCATED)

    # ----------------------------------------------------------------- holding and streaming

    def _data(self, now_ns: int, event: UpstreamData) -> Step:
        return self._take(now_ns, self._answer.feed(event.data))

    def _read(self, now_ns: int, event: UpstreamRead) -> Step:
        return self._take(now_ns, self._answer.read(event.reading))

    def _take(self, now_ns: int, reading: Reading) -> Step:
        step = self._forward(now_ns, reading) if self._answer.is_stream else []
        if reading.error is not None:
            return [*step, *self._fail(now_ns, failures.of_error(reading.error), cancel=True)]
        produced = self._answer.output_tokens
        if produced - self._reported_tokens >= PROGRESS_TOKENS:
            self._reported_tokens = produced
            step.append(Progress(self._id, produced))
        self._arm(now_ns)
        return step

    def _forward(self, now_ns: int, reading: Reading) -> Step:
        if not (reading.forward or reading.tokens):
            return []
        data = ForwardData(self._id, reading.forward)
        if self.state is State.STREAMING:
            return [data]
        self.state = State.STREAMING
        reply = self._answer
        waited, upstream = self._course.waited_ns(now_ns), self._course.called_ns(now_ns)
        headers = answers.stream_headers(reply.headers, waited, upstream, self.wait_cause)
        return [ForwardHeaders(self._id, reply.status, self._marked(headers)), data]

    def _held_ended(self, now_ns: int, event: UpstreamEnded) -> Step:
        reply = self._answer
        if not reply.ok:
            return self._provider_said_no(now_ns)
        if reply.is_stream or not event.clean:
            return self._fail(now_ns, failures.TRUNCATED)
        error = reply.finish().error
        if error is not None:
            return self._fail(now_ns, failures.of_error(error))
        return self._respond(now_ns, self._passed_on(now_ns), Outcome.ANSWERED, "ok")

    def _held_failed(self, now_ns: int, event: UpstreamFailed) -> Step:
        if not self._answer.ok:
            return self._provider_said_no(now_ns)
        return self._fail(now_ns, failures.BY_KIND[event.kind])

    def _stream_over(self, now_ns: int, _: UpstreamEnded | UpstreamFailed) -> Step:
        return self._complete(now_ns) if self._answer.terminal else self._fail(now_ns, failures.TRUNCATED)

    def _provider_said_no(self, now_ns: int, *, cancel: bool = False) -> Step:
        reply = self._answer
        if reply.status in failures.CALLERS_FAULT:
            step: Step = [CancelUpstream(self._id)] if cancel else []
            return step + self._respond(
                now_ns, self._passed_on(now_ns), Outcome.FAILED, "refused_by_provider"
            )
        return self._fail(now_ns, failures.of_status(reply.status, reply.body), cancel=cancel)

    def _passed_on(self, now_ns: int) -> Answer:
        reply = self._answer
        waited, upstream = self._course.waited_ns(now_ns), self._course.called_ns(now_ns)
        return answers.passed_on(reply.status, reply.headers, reply.body, waited, upstream, self.wait_cause)

    # ----------------------------------------------------------------- endings from outside

    def _timed_out(self, now_ns: int, _: TimedOut) -> Step:
        reply = self._reply
        if reply is not None and reply.terminal and self.state is State.STREAMING:
            return [CancelUpstream(self._id), *self._complete(now_ns)]
        if reply is not None and not reply.ok:
            return self._provider_said_no(now_ns, cancel=True)
        begun = not self._awaits_first_event
        return self._fail(now_ns, self._limits.failure(now_ns, begun=begun), cancel=True)

    def _left(self, now_ns: int, _: ClientLeft) -> Step:
        step: Step = [CancelUpstream(self._id)]
        if self.state is not State.STREAMING:
            return step + self._abandoned(now_ns, 0)
        status = self._answer.status
        if self._answer.terminal:
            return step + self._end(now_ns, Outcome.ANSWERED, status, "ok")
        return step + self._abandoned(now_ns, status)

    def _lease_expired(self, now_ns: int, _: Expired) -> Step:
        self._held = False
        return self._fail(now_ns, failures.LEASE_EXPIRED, cancel=True)

    def _stopped(self, now_ns: int, _: Stop) -> Step:
        return self._fail(now_ns, failures.SHUTTING_DOWN, cancel=True)

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

    def _respond(self, now_ns: int, answer: Answer, outcome: Outcome, reason: str) -> Step:
        return [self._whole(answer), *self._end(now_ns, outcome, answer.status, reason)]

    def _whole(self, answer: Answer) -> Respond:
        return Respond(self._id, answer.status, self._marked(answer.headers), answer.body)

    def _marked(self, headers: Headers) -> Headers:
        """`X-Model-Fallback`, where another model than the one asked for was called."""
        if self._fallback is None:
            return headers
        return (*headers, (b"x-model-fallback", self._fallback.encode()))

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

    # ----------------------------------------------------------------- the table

    _ENDS_A_CALL: ClassVar[dict[type, Callable[[RequestLifecycle, int, Any], Step]]] = {
        ClientLeft: _left,
        TimedOut: _timed_out,
        Expired: _lease_expired,
        Stop: _stopped,
    }
    _STEPS: ClassVar[dict[State, dict[type, Callable[[RequestLifecycle, int, Any], Step]]]] = {
        State.WAITING: {
            Dispatched: _dispatched,
            Refused: _decided_against,
            Expired: _decided_against,
            NotRetried: _not_retried,
            ClientLeft: _left_queue,
            Stop: _stopped_waiting,
        },
        State.CALLING: {
            UpstreamHeaders: _headers,
            UpstreamEnded: _call_ended,
            UpstreamFailed: _call_failed,
            **_ENDS_A_CALL,
        },
        State.HOLDING: {
            UpstreamData: _data,
            UpstreamRead: _read,
            UpstreamEnded: _held_ended,
            UpstreamFailed: _held_failed,
            **_ENDS_A_CALL,
        },
        State.STREAMING: {
            UpstreamData: _data,
            UpstreamRead: _read,
            UpstreamEnded: _stream_over,
            UpstreamFailed: _stream_over,
            **_ENDS_A_CALL,
        },
        State.ENDED: {},
    }
    """Which event does what in which state. What is not listed is ignored."""
