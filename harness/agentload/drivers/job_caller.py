"""One exchange about a durable job over the network: a POST, or a question after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import gevent
import msgspec

from agentload.client.http_fields import parse_retry_after
from agentload.client.job_pursuit import JobAsk, JobReply, Kind
from agentload.client.job_words import words_of
from agentload.client.job_writer import JobWriter
from agentload.drivers.http1 import Exchange
from agentload.drivers.http1_answer import Failure
from agentload.model import Arrival, JobOrder, Outcome, Profile
from agentload.targets import Target

MAX_BODY = 2**20


class JobCall(msgspec.Struct, frozen=True, gc=False):
    """What came of it."""

    reply: JobReply
    ended_ns: int
    body_bytes: int = 0


class Line(Protocol):
    """Who has the connections: `Caller`."""

    worker: int

    def now_ns(self) -> int: ...

    def send(self, tenant: str, request: bytes, timeout_at_ns: int, reader: BodyReader) -> Exchange: ...


class BodyReader:
    """Keeps an answer whole."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        """`redact` blanks secrets in the fields that go into records."""
        self._redact = redact
        self.status = 0
        self.body = b""
        self.location: str | None = None
        self.retry_after: str | None = None
        self.retry_after_s: float | None = None
        self.reason: str | None = None

    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        """The status and the fields."""
        self.status = status
        for name, value in headers:
            match name.lower():
                case b"retry-after":
                    raw = value.decode("latin-1")
                    self.retry_after = self._redact(raw)
                    self.retry_after_s = parse_retry_after(raw, now_epoch_s)
                case b"location":
                    self.location = value.decode("latin-1").strip(" \t")
                case b"x-admission-reason":
                    self.reason = self._redact(value.decode("latin-1"))[:120]
                case _:
                    pass

    def feed(self, data: bytes, now_ns: int) -> bool:  # noqa: ARG002
        """Some of the body."""
        if len(self.body) < MAX_BODY:
            self.body += data
        return False


class JobCaller:
    """Makes the exchanges for the jobs of one run."""

    def __init__(self, target: Target, profile: Profile, run_id: int, line: Line) -> None:
        self.run_id = run_id
        self.words = words_of(target)
        """In which its answers are understood."""
        self._line = line
        self._writer = JobWriter(target, run_id)
        self._redact = target.redactor()
        self._places = {tenant.name: place for place, tenant in enumerate(profile.tenants)}

    def key(self, arrival: Arrival) -> str:
        """The idempotency key of a job; empty where none is sent."""
        return self._writer.key(arrival)

    def ask(self, arrival: Arrival, order: JobOrder, ask: JobAsk) -> JobCall:
        """One exchange. When the greenlet is killed meanwhile, it is unfinished."""
        reader, began_ns = BodyReader(self._redact), self._line.now_ns()
        timeout_at_ns = began_ns + ask.timeout_at_ns - ask.due_ns
        if ask.kind is Kind.POST:
            request = self._writer.post(arrival, order, self._places[arrival.tenant], began_ns)
        else:
            request = self._writer.poll(arrival, ask.job_id, ask.path)
        try:
            exchange = self._line.send(arrival.tenant, request, timeout_at_ns, reader)
        except gevent.GreenletExit:
            reply = JobReply(sent_ns=began_ns, reason="unfinished", outcome=Outcome.UNFINISHED)
            return JobCall(reply, self._line.now_ns())
        return JobCall(self._reply(exchange, reader), exchange.ended_ns, exchange.body_bytes)

    def _reply(self, exchange: Exchange, reader: BodyReader) -> JobReply:
        failure = exchange.failure
        if failure is not None:
            unsent = Outcome.UNSENT if failure is Failure.EXHAUSTED else None
            return JobReply(
                sent_ns=exchange.sent_ns, reason=failure.value, outcome=unsent, worker=self._line.worker
            )
        return JobReply(
            sent_ns=exchange.sent_ns,
            status=reader.status,
            body=reader.body,
            location=reader.location,
            retry_after=reader.retry_after,
            retry_after_s=reader.retry_after_s,
            reason=reader.reason,
            worker=self._line.worker,
            connection_reused=exchange.reused,
        )
