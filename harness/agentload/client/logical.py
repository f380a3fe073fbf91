"""One thing a user wanted, and the attempts at it: timeouts, retries, finality and records.

Pure, and shared: the live worker and the simulator ask the same object what to do and report what happened.

    request = LogicalRequest(arrival, behaviour, seed, horizon_ns)
    start = request.start(now_ns)                     # send attempt start.number, leave at timeout_at_ns
    record, next_due_ns = request.ended(now_ns, result)  # None: it is over
"""

from __future__ import annotations

from random import Random

import msgspec

from agentload.behaviours import Attempt, Behaviour
from agentload.model import NS, Arrival, Outcome, RequestRecord

MAX_ATTEMPTS = 255
"""The marker numbers attempts with 8 bits."""
_LONGEST_WAIT_S = 86_400.0
_UNUSED = Random(0)
"""For behaviours that draw nothing."""
_NOT_THE_CLIENTS = frozenset({Outcome.UNFINISHED, Outcome.UNSENT})
"""Endings that the run or the generator brought about: no client ever hears of them."""

LEFT = "left"
"""The reason of an attempt whose client left on purpose, before its timeout."""


class AttemptStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to do now."""

    number: int
    """0 for the first attempt."""
    due_ns: int
    """The intended start: the arrival, or the instant at which the retry was due."""
    timeout_at_ns: int
    """When the client leaves, if there is no answer by then."""
    leave_at_ns: int | None = None
    """When it leaves if nothing of an answer (of a stream: no token) has come; None: not before the above."""
    leave_after_tokens: int | None = None
    """Tokens of a stream after which it has read enough and leaves."""
    said_number: int | None = None
    """The number as the client gives it; None: the true one."""
    sends_key: bool = False
    """Whether it names the logical request with an idempotency key."""


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt went, as the client could see it. Made by `wire.ReplyReader`, or by the simulator."""

    outcome: Outcome
    sent_ns: int
    status: int = 0
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    retry_after: str | None = None
    """The header exactly as received."""
    retry_after_s: float | None = None
    """The header in seconds, None unless it is RFC 9110 syntax: for records."""
    retry_after_hint_s: float | None = None
    """What a lenient client reads from it (fractions, negative numbers): for behaviours. None: as above."""
    retry_after_ms: float | None = None
    should_retry: bool | None = None
    input_tokens: int | None = None
    """From the usage block; None: as planned."""
    output_tokens: int = 0
    server_queue_ns: int | None = None
    wait_cause: str | None = None
    reason: str | None = None
    own_answer: bool | None = None
    worker: int = 0
    connection_reused: bool = False
    stream: bool | None = None
    """Whether a stream was asked for; None: as planned."""
    called_off: int | None = None
    """As of `RequestRecord`."""
    silent: bool = False
    """As of `RequestRecord`."""


class LogicalRequest:
    """The attempts at one arrival, in order. `start` and `ended` alternate, beginning with `start`."""

    __slots__ = ("_behaviour", "_due_ns", "_horizon_ns", "_number", "_random", "_seed", "arrival")

    def __init__(
        self, arrival: Arrival, behaviour: Behaviour, seed: int, horizon_ns: int | None = None
    ) -> None:
        """`horizon_ns` is the end of the run's drain: no retry is due at or after it."""
        self.arrival = arrival
        self._behaviour = behaviour.for_request(seed, arrival)
        self._seed = seed
        self._horizon_ns = horizon_ns
        self._number = 0
        self._due_ns = arrival.due_ns
        self._random: Random | None = None

    def start(self, now_ns: int) -> AttemptStart:
        """Begin the next attempt. The client's patience begins when it sends."""
        behaviour, sent_ns = self._behaviour, max(now_ns, self._due_ns)
        leave_s = behaviour.leave_after_s()
        return AttemptStart(
            number=self._number,
            due_ns=self._due_ns,
            timeout_at_ns=sent_ns + round(behaviour.timeout_s * NS),
            leave_at_ns=None if leave_s is None else sent_ns + round(leave_s * NS),
            leave_after_tokens=behaviour.leave_after_tokens(),
            said_number=behaviour.said_attempt(self._number) if self._number else None,
            sends_key=behaviour.sends_key,
        )

    def ended(self, now_ns: int, result: AttemptResult) -> tuple[RequestRecord, int | None]:
        """Its record, and when the next attempt is due; None when this one was the last."""
        next_due_ns = self._next_due_ns(now_ns, result)
        record = self._record(now_ns, result, final=next_due_ns is None)
        if next_due_ns is not None:
            self._number += 1
            self._due_ns = next_due_ns
        return record, next_due_ns

    def _next_due_ns(self, now_ns: int, result: AttemptResult) -> int | None:
        if result.outcome in _NOT_THE_CLIENTS:
            return None
        attempt = self._attempt(result)
        self._behaviour.heard(attempt)
        if result.outcome is Outcome.ANSWERED or self._number + 1 >= MAX_ATTEMPTS:
            return None
        delay_s = self._behaviour.retry_delay_s(attempt, self._jitter())
        if delay_s is None or delay_s > _LONGEST_WAIT_S:
            return None
        due_ns = now_ns + round(max(0.0, delay_s) * NS)
        return due_ns if due_ns < self._end_ns() and self._behaviour.may_retry() else None

    def _end_ns(self) -> float:
        """No attempt starts from here on: its deadline has passed, or the run is over."""
        deadline_ns, ends = self.arrival.job.deadline_ns, [float("inf")]
        if deadline_ns is not None:
            ends.append(self.arrival.due_ns + deadline_ns)
        if self._horizon_ns is not None:
            ends.append(self._horizon_ns)
        return min(ends)

    def _attempt(self, result: AttemptResult) -> Attempt:
        """What the behaviour may look at. A stream whose 200 has come counts as begun: no SDK retries it."""
        hint_s = result.retry_after_s if result.retry_after_hint_s is None else result.retry_after_hint_s
        stream = self.arrival.job.stream if result.stream is None else result.stream
        begun = result.first_token_ns is not None or (stream and result.status == 200)
        return Attempt(
            number=self._number,
            outcome=result.outcome,
            status=result.status,
            retry_after_s=hint_s,
            retry_after=result.retry_after,
            retry_after_ms=result.retry_after_ms,
            should_retry=result.should_retry,
            streamed=begun,
        )

    def _jitter(self) -> Random:
        """The request's own stream, made when first needed: most requests never retry."""
        if not self._behaviour.draws:
            return _UNUSED
        if self._random is None:
            self._random = Random(f"{self._seed}/{self.arrival.tenant}/{self.arrival.seq}/retry")
        return self._random

    def _record(self, now_ns: int, result: AttemptResult, *, final: bool) -> RequestRecord:
        arrival, job = self.arrival, self.arrival.job
        return RequestRecord(
            seq=arrival.seq,
            attempt=self._number,
            tenant=arrival.tenant,
            service_class=arrival.service_class,
            phase=arrival.phase,
            due_ns=self._due_ns,
            sent_ns=result.sent_ns,
            ended_ns=now_ns,
            outcome=result.outcome,
            final=final,
            first_due_ns=arrival.due_ns,
            first_token_ns=result.first_token_ns,
            last_token_ns=result.last_token_ns,
            status=result.status,
            retry_after=result.retry_after,
            retry_after_s=result.retry_after_s,
            input_tokens=job.input_tokens if result.input_tokens is None else result.input_tokens,
            declared_output_tokens=job.declared_output_tokens,
            output_tokens=result.output_tokens,
            planned_output_tokens=job.output_tokens,
            stream=job.stream if result.stream is None else result.stream,
            server_queue_ns=result.server_queue_ns,
            wait_cause=result.wait_cause,
            reason=result.reason,
            own_answer=result.own_answer,
            worker=result.worker,
            connection_reused=result.connection_reused,
            run=arrival.run,
            called_off=result.called_off,
            silent=result.silent,
        )
