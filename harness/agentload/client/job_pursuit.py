"""One durable job as its client sees it: posted until accepted, then asked for until it has ended. Pure.

Shared by the live worker and the simulator, as `logical` is: both ask the same object what to send and when.

    pursuit = JobPursuit(arrival, order, key, horizon_ns)
    while (ask := pursuit.next_ask()) is not None:        # wait until ask.due_ns, send it
        record = pursuit.heard(now_ns, ask, reply)         # the record of a POST, None for a poll
    pursuit.record()

A POST that brings no answer is made again with the same idempotency key: the gateway may have accepted the
job before it died. One that is refused with 429 or 503 is made again when the refusal says. A gateway that is
away is asked again and again. Nothing is posted after the job's deadline; an accepted job is given up when
the gateway still shows no end of it `grace_s` after that (or after it is back, if it was away then), or when
the run ends.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, cast

import msgspec

from agentload.client.job_words import JobWords, OwnWords, Shown
from agentload.model import NS, Arrival, JobOrder, JobRecord, Outcome, RequestRecord

TERMINAL = ("completed", "failed", "expired", "cancelled")
FIRST_WAIT_NS = NS // 4
"""Before a POST that brought no answer is made again; it doubles up to `LONGEST_WAIT_NS`."""
LONGEST_WAIT_NS = NS
REFUSED_WAIT_S = 1.0
"""After a refusal that does not say when to come back."""
WITHOUT_ID = "answer-without-id"
"""The reason of a POST whose answer accepts a job, and does not say which."""


class Kind(StrEnum):
    """What is sent."""

    POST = "post"
    POLL = "poll"


class JobAsk(msgspec.Struct, frozen=True):
    """The next thing to send."""

    kind: Kind
    due_ns: int
    timeout_at_ns: int
    """When an answer is no longer waited for, if it is sent at `due_ns`."""
    job_id: str = ""
    """Whom a poll is about."""
    path: str = ""
    """Where it goes; empty: at the id."""


class JobReply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    sent_ns: int
    status: int = 0
    """0: no answer."""
    body: bytes = b""
    location: str | None = None
    retry_after: str | None = None
    retry_after_s: float | None = None
    reason: str | None = None
    """`X-Admission-Reason`, or the transport error."""
    outcome: Outcome | None = None
    """Of an exchange that the run or the generator ended (UNFINISHED, UNSENT); None: as the status says."""
    worker: int = 0
    connection_reused: bool = False


class JobPursuit:
    """`next_ask` and `heard` alternate until there is nothing more to ask; `record` says how it went."""

    def __init__(
        self, arrival: Arrival, order: JobOrder, key: str, horizon_ns: int, words: JobWords | None = None
    ) -> None:
        """`key`: of every POST, empty where none is sent. `horizon_ns`: the end of the run's drain; nothing
        is sent at or after it. `words`: in which answers are understood; None: our own protocol's."""
        self.arrival = arrival
        self._words = words or OwnWords()
        self._path = ""
        self._order = order
        deadline_ns = arrival.due_ns + round(order.deadline_s * NS)
        self._horizon_ns = horizon_ns
        self._patient_until_ns = deadline_ns + round(order.grace_s * NS)
        self._grace_ns = round(order.grace_s * NS)
        self._away = False
        """The last poll brought no answer."""
        self._poll_ns = round(order.poll_s * NS)
        self._next: tuple[Kind, int] | None = (Kind.POST, arrival.due_ns)
        self._confirm_ns = round(order.confirm_s * NS)
        self._end: tuple[str, str | None, int | None] | None = None
        """The end that was seen: state, reason, and when, by the gateway's own clock."""
        self._confirmed = False
        self._silent = 0
        """POSTs in a row without an answer."""
        self._job = JobRecord(
            seq=arrival.seq,
            tenant=arrival.tenant,
            service_class=arrival.service_class,
            phase=arrival.phase,
            due_ns=arrival.due_ns,
            deadline_ns=deadline_ns,
            key=key,
            steps=len(order.steps),
            max_attempts=order.max_attempts,
            poll_faults={},
            winners={},
        )

    @property
    def posts(self) -> int:
        """POSTs made so far."""
        return self._job.posts

    def next_ask(self) -> JobAsk | None:
        """What to send next; None: it is over."""
        if self._next is None:
            return None
        kind, due_ns = self._next
        timeout_ns = round(self._order.timeout_s * NS)
        return JobAsk(kind, due_ns, due_ns + timeout_ns, self._job.id or "", self._path)

    def heard(self, now_ns: int, ask: JobAsk, reply: JobReply) -> RequestRecord | None:
        """What came of it. The record of a POST; None for a poll."""
        self._next = None
        if ask.kind is Kind.POLL:
            self._polled(now_ns, reply)
            return None
        number = self._job.posts
        self._posted(now_ns, reply)
        return self._record(now_ns, number, ask, reply)

    def stop(self, now_ns: int) -> None:
        """The run is over: nothing more is sent."""
        self._next = None
        if self._job.state is None and self._job.posts:
            self._job.gave_up_ns = now_ns

    def record(self) -> JobRecord:
        """How it has gone."""
        return self._job

    # ----------------------------------------------------------------- posting

    def _posted(self, now_ns: int, reply: JobReply) -> None:
        job = self._job
        if reply.outcome is Outcome.UNSENT:
            return
        job.posts += 1
        job.status = reply.status
        if job.sent_ns is None:
            job.sent_ns = reply.sent_ns
        shown = self._words.read(reply.body, reply.location) if self._words.accepts(reply.status) else None
        if shown is not None and shown.id:
            job.accepted_ns, job.id, self._path = now_ns, shown.id, shown.path
            self._promised(now_ns, shown)
            self._ask_at(Kind.POLL, now_ns, now_ns + self._poll_ns)
        elif reply.outcome is None and (wait_ns := self._wait_ns(reply)) is not None:
            self._ask_at(Kind.POST, now_ns, now_ns + wait_ns)

    def _wait_ns(self, reply: JobReply) -> int | None:
        """How long to wait before the POST is made again; None: never."""
        if reply.status == 0:
            self._silent += 1
            return min(LONGEST_WAIT_NS, FIRST_WAIT_NS << min(self._silent - 1, 8))
        self._silent = 0
        if reply.status in (429, 503, 529):
            wait_s = REFUSED_WAIT_S if reply.retry_after_s is None else reply.retry_after_s
            return round(max(0.0, wait_s) * NS)
        return None

    # ----------------------------------------------------------------- polling

    def _polled(self, now_ns: int, reply: JobReply) -> None:
        job = self._job
        job.polls += 1
        shown = self._words.read(reply.body, None) if _is_view(self._words, reply.status) else None
        shown = shown if shown is not None and shown.state else None
        if reply.status:
            job.answered_ns = now_ns
            if self._away:  # who has just been started has not had the time to end what is overdue
                self._patient_until_ns = max(self._patient_until_ns, now_ns + self._grace_ns)
        self._away = not reply.status
        if shown is None:
            why = str(reply.status or reply.reason or "no-answer")
            job.poll_faults[why] = job.poll_faults.get(why, 0) + 1
        elif job.state is None:
            self._promised(now_ns, shown)
            self._seen(now_ns, shown)
        else:
            job.relapsed = _end_of(shown) != self._end
            self._confirmed = True
        if job.state is None and reply.status and now_ns >= self._patient_until_ns:
            job.gave_up_ns = now_ns
        elif not self._confirmed:
            just_ended = job.ended_ns == now_ns
            wait_ns = max(self._poll_ns, self._confirm_ns) if just_ended else self._poll_ns
            self._ask_at(Kind.POLL, now_ns, now_ns + wait_ns)

    def _seen(self, now_ns: int, shown: Shown) -> None:
        job = self._job
        job.attempts, job.deliveries = shown.attempts, shown.deliveries
        if shown.state not in TERMINAL:
            job.shown_ns = now_ns
            return
        self._end = _end_of(shown)
        job.state, job.reason, job.ended_ns = shown.state, shown.reason, now_ns
        for result in shown.results:
            step, output = result.get("step"), result.get("output")
            if result.get("kind") == "tool" and isinstance(step, int | str) and isinstance(output, dict):
                call = cast("dict[str, Any]", output).get("call")
                if isinstance(call, int):
                    job.winners[str(step)] = call

    def _promised(self, now_ns: int, shown: Shown) -> None:
        """The first ETA counts."""
        if self._job.told_ns is None and shown.eta_s is not None:
            self._job.told_ns = now_ns
            self._job.eta_s, self._job.position = shown.eta_s, shown.position

    # ----------------------------------------------------------------- both

    def _ask_at(self, kind: Kind, now_ns: int, at_ns: int) -> None:
        end_ns = self._horizon_ns
        if kind is Kind.POST:
            end_ns = min(end_ns, self._job.deadline_ns)
        if at_ns < end_ns:
            self._next = (kind, at_ns)
        elif self._job.state is None:
            self._job.gave_up_ns = now_ns

    def _record(self, now_ns: int, number: int, ask: JobAsk, reply: JobReply) -> RequestRecord:
        arrival = self.arrival
        again = self._next is not None and self._next[0] is Kind.POST
        nameless = self._words.accepts(reply.status) and self._job.accepted_ns is None
        return RequestRecord(
            seq=arrival.seq,
            attempt=number,
            tenant=arrival.tenant,
            service_class=arrival.service_class,
            phase=arrival.phase,
            due_ns=ask.due_ns,
            sent_ns=reply.sent_ns,
            ended_ns=now_ns,
            outcome=reply.outcome or self._outcome(reply.status),
            final=not again,
            first_due_ns=arrival.due_ns,
            status=reply.status,
            retry_after=reply.retry_after,
            retry_after_s=reply.retry_after_s,
            reason=WITHOUT_ID if nameless else reply.reason,
            worker=reply.worker,
            connection_reused=reply.connection_reused,
        )

    def _outcome(self, status: int) -> Outcome:
        """Of a POST: that it was accepted is its answer."""
        if self._words.accepts(status):
            return Outcome.ANSWERED if self._job.accepted_ns is not None else Outcome.FAILED
        return Outcome.REJECTED if status in (402, 413, 429, 503, 529) else Outcome.FAILED


def _is_view(words: JobWords, status: int) -> bool:
    """Whether an answer to a poll shows the job: some APIs say 202 as long as it has not ended."""
    return status == 200 or words.accepts(status)


def _end_of(shown: Shown) -> tuple[str, str | None, int | None]:
    return shown.state, shown.reason, shown.ended_ms
