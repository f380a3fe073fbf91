"""The clients of durable jobs in virtual time: what `drivers/job_load.py` does with greenlets and sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from agentload.client.http_fields import parse_retry_after
from agentload.client.job_pursuit import JobAsk, JobPursuit, JobReply, Kind
from agentload.client.job_writer import deadline_ms, job_body
from agentload.client.request_writer import idempotency_key
from agentload.drivers.simulated.gateway import Inquiry
from agentload.drivers.simulated.kernel import TIMER, Kernel
from agentload.drivers.simulated.network import Timing
from agentload.gateway.headers import Headers, first
from agentload.gateway.jobs.protocol import JobAsked, JobPosted
from agentload.gateway.protocol import Respond
from agentload.model import Arrival, JobOrder, JobRecord, Outcome, RequestRecord
from agentload.scheduler.wall_clock import EPOCH_NS
from agentload.targets import DEFAULT_MODEL

FIRST_NUMBER = 1 << 40
"""Inquiries are numbered from here, attempts from 1."""
TIMEOUT = "timeout"


class Door(Protocol):
    """The gateway's front door, for what is asked about jobs."""

    def ask(self, inquiry: Inquiry) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Keepers:
    """Who is told."""

    record: Callable[[RequestRecord], None]
    """Every POST."""
    job: Callable[[JobRecord], None]
    over: Callable[[], None]
    """A pursuit is over."""


class _Chase:
    """One job being pursued; as an `Inquiry`, what it is asking at present."""

    def __init__(self, clients: JobClients, pursuit: JobPursuit) -> None:
        self._clients = clients
        self.pursuit = pursuit
        self.ask: JobAsk | None = None
        self.handle = 0
        """Of the timer that is set: the next ask, or the end of patience."""


class _Asking:
    """One exchange in flight."""

    def __init__(self, clients: JobClients, chase: _Chase, number: int, ask: JobAsk, sent_ns: int) -> None:
        self._clients = clients
        self.chase = chase
        self.number = number
        self.ask = ask
        self.sent_ns = sent_ns
        self.event: JobPosted | JobAsked

    def hear(self, respond: Respond) -> None:
        """The gateway's answer."""
        retry_after = first(respond.headers, b"retry-after")
        now_s = (self._clients.kernel.now_ns + EPOCH_NS) / 1e9
        reply = JobReply(
            sent_ns=self.sent_ns,
            status=respond.status,
            body=respond.body,
            retry_after=retry_after,
            retry_after_s=None if retry_after is None else parse_retry_after(retry_after, now_s),
            reason=first(respond.headers, b"x-admission-reason"),
        )
        self._clients.heard(self, reply)

    def cut(self, reason: str) -> None:
        """No connection, or it broke."""
        self._clients.heard(self, JobReply(sent_ns=self.sent_ns, reason=reason))


class JobClients:
    """All of a run. Each job has one exchange in flight at most."""

    def __init__(
        self,
        kernel: Kernel,
        timing: Timing,
        orders: Mapping[str, JobOrder],
        places: Mapping[str, int],
        *,
        run: int,
        horizon_ns: int,
        keepers: Keepers,
    ) -> None:
        """`orders`: by tenant. `places`: tenant → its number in markers. `run`: the marker's."""
        self.kernel = kernel
        self.timing = timing
        self.orders = orders
        self.door: Door
        """Connected by the world before it begins."""
        self._places = places
        self._run = run
        self._horizon_ns = horizon_ns
        self._keepers = keepers
        self._asked = 0
        self._chases: dict[int, _Chase] = {}
        """By seq."""
        self._open: dict[int, _Asking] = {}
        """By seq, those in flight."""

    def begin(self, arrival: Arrival) -> None:
        """A job is due."""
        key = idempotency_key(self._run, arrival)
        pursuit = JobPursuit(arrival, self.orders[arrival.tenant], key, self._horizon_ns)
        self._chases[arrival.seq] = chase = _Chase(self, pursuit)
        self._go_on(chase)

    def end(self) -> None:
        """The run is over: what is in flight is unfinished, what has not ended is given up."""
        for asking in list(self._open.values()):
            outcome = Outcome.UNFINISHED
            self.heard(asking, JobReply(sent_ns=asking.sent_ns, reason="unfinished", outcome=outcome))
        for chase in list(self._chases.values()):
            self.kernel.cancel(chase.handle)
            chase.pursuit.stop(self.kernel.now_ns)
            self._over(chase)

    def heard(self, asking: _Asking, reply: JobReply) -> None:
        """What came of an exchange. Nobody listens once it has timed out."""
        chase = asking.chase
        seq = chase.pursuit.arrival.seq
        if self._open.get(seq) is not asking:
            return
        del self._open[seq]
        self.kernel.cancel(chase.handle)
        record = chase.pursuit.heard(self.kernel.now_ns, asking.ask, reply)
        if record is not None:
            self._keepers.record(record)
        if reply.outcome is None:
            self._go_on(chase)

    def _go_on(self, chase: _Chase) -> None:
        ask = chase.pursuit.next_ask()
        if ask is None:
            self._over(chase)
        else:
            chase.ask = ask
            chase.handle = self.kernel.at(ask.due_ns, self._send, chase, TIMER)

    def _over(self, chase: _Chase) -> None:
        del self._chases[chase.pursuit.arrival.seq]
        self._keepers.job(chase.pursuit.record())
        self._keepers.over()

    def _send(self, chase: _Chase) -> None:
        ask, arrival, now_ns = chase.ask, chase.pursuit.arrival, self.kernel.now_ns
        assert ask is not None
        self._asked += 1
        asking = _Asking(self, chase, FIRST_NUMBER + self._asked, ask, now_ns)
        asking.event = self._event(asking.number, arrival, ask)
        self._open[arrival.seq] = asking
        chase.handle = self.kernel.at(ask.timeout_at_ns, self._time_out, asking, TIMER)
        self.kernel.at(now_ns + self.timing.one_way_ns, self.door.ask, asking)

    def _event(self, number: int, arrival: Arrival, ask: JobAsk) -> JobPosted | JobAsked:
        identity: Headers = (
            (b"x-tenant", arrival.tenant.encode()),
            (b"x-service-class", arrival.service_class.encode()),
        )
        if ask.kind is Kind.POLL:
            return JobAsked(number, identity, ask.job_id)
        order, place = self.orders[arrival.tenant], self._places[arrival.tenant]
        own: Headers = (
            (b"idempotency-key", idempotency_key(self._run, arrival).encode()),
            (b"x-deadline-ms", b"%d" % deadline_ms(arrival, order, self.kernel.now_ns)),
        )
        body = job_body(arrival, order, self._run, place, arrival.model or DEFAULT_MODEL)
        return JobPosted(number, (*identity, *own), body)

    def _time_out(self, asking: _Asking) -> None:
        asking.cut(TIMEOUT)
