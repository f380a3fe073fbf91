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

from collections.abc import Callable
from typing import Any, ClassVar

from agentload.gateway import answers, failures
from agentload.gateway.answers import Answer
from agentload.gateway.patience import Patience
from agentload.gateway.protocol import (
    CancelUpstream,
    ClientLeft,
    ForwardData,
    ForwardHeaders,
    NotRetried,
    Progress,
    ProviderAccepted,
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
from agentload.gateway.under_way import RequestUnderWay, State, Step
from agentload.gateway.usage import Reading
from agentload.model import Outcome
from agentload.scheduler.events import Dispatched, Expired, Refused
from agentload.scheduler.reasons import Reason

__all__ = ["RequestLifecycle", "State", "Step"]

PROGRESS_TOKENS = 128
"""Output tokens between two reports to the scheduler, which charges the overrun while it happens."""


class RequestLifecycle(RequestUnderWay):
    """One client request: which event does what in which state."""

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
