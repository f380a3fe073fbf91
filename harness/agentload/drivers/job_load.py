"""Durable jobs of a worker: each is pursued in the greenlet of its arrival. It only waits and sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from agentload.client.job_pursuit import JobAsk, JobPursuit, JobReply, Kind
from agentload.client.job_words import JobWords
from agentload.client.logical import AttemptResult
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.job_caller import JobCall
from agentload.drivers.tally import Tally
from agentload.model import Arrival, JobOrder, JobRecord, Outcome, RequestRecord

Keep = Callable[[RequestRecord, Call | None], None]


class JobCalls(Protocol):
    """Who makes the exchanges: `JobCaller`, or a stand-in."""

    words: JobWords

    def key(self, arrival: Arrival) -> str: ...

    def ask(self, arrival: Arrival, order: JobOrder, ask: JobAsk) -> JobCall: ...


class JobLoad:
    """Pursues jobs, each from its arrival to its end."""

    def __init__(
        self,
        orders: Mapping[str, JobOrder],
        calls: JobCalls,
        clock: RunClock,
        tally: Tally,
        keep: Keep,
        keep_job: Callable[[JobRecord], None],
    ) -> None:
        """`orders`: by tenant."""
        self.orders = orders
        self.issued = 0
        """Jobs whose first POST was sent."""
        self._calls = calls
        self._clock = clock
        self._tally = tally
        self._keep = keep
        self._keep_job = keep_job

    def pursue(self, arrival: Arrival, horizon_ns: int, wait_until: Callable[[int], bool]) -> None:
        """Post and poll until it is over. `wait_until`: False when the run was stopped meanwhile."""
        order = self.orders[arrival.tenant]
        pursuit = JobPursuit(arrival, order, self._calls.key(arrival), horizon_ns, self._calls.words)
        try:
            while (ask := pursuit.next_ask()) is not None:
                if not wait_until(ask.due_ns):
                    break
                if self._exchange(pursuit, order, ask).outcome is Outcome.UNFINISHED:
                    break
        finally:
            pursuit.stop(self._clock.now_ns())
            self._keep_job(pursuit.record())

    def _exchange(self, pursuit: JobPursuit, order: JobOrder, ask: JobAsk) -> JobReply:
        counts, posted = self._tally.of(pursuit.arrival.tenant), ask.kind is Kind.POST
        first = posted and pursuit.posts == 0
        counts.in_flight += 1
        counts.offered += first
        counts.retries += posted and not first
        try:
            call = self._calls.ask(pursuit.arrival, order, ask)
        finally:
            counts.in_flight -= 1
        reply = call.reply
        record = pursuit.heard(call.ended_ns, ask, reply)
        if record is not None:
            self.issued += first and record.outcome is not Outcome.UNSENT
            result = AttemptResult(outcome=record.outcome, sent_ns=record.sent_ns)
            self._keep(record, Call(result, call.ended_ns, call.body_bytes))
        return reply
