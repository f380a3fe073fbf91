"""One attempt over the network: the bytes that `wire` wants sent, and the answer as `wire` reads it."""

from __future__ import annotations

import gevent

from agentload.client.logical import LEFT, AttemptStart
from agentload.client.wire import Ending, ReplyReader, RequestWriter, marker_of
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.http1 import Address, Endpoint, Exchange, Http1Client, resolve
from agentload.drivers.http1_answer import MAX_BODY_BYTES, ExchangeError
from agentload.drivers.job_caller import BodyReader, JobCaller
from agentload.drivers.polled_caller import ENDINGS, PolledCaller
from agentload.drivers.room import Room
from agentload.errors import UnreachableError
from agentload.model import Arrival, Profile
from agentload.targets import Target


class _Left(Exception):
    """The client has heard enough: the connection closes under the answer."""


class _Quitter:
    """Passes an answer on to its reader, until that is enough for it."""

    def __init__(self, reader: ReplyReader, patience: gevent.Timeout, enough_tokens: int | None) -> None:
        self.reader = reader
        self._patience = patience
        """Runs out unless something comes first."""
        self._enough_tokens = enough_tokens

    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        self.reader.head(status, headers, now_epoch_s)

    def feed(self, data: bytes, now_ns: int) -> bool:
        is_whole = self.reader.feed(data, now_ns)
        if self.reader.has_begun:
            self._patience.cancel()
        if self._enough_tokens is not None and self._enough_tokens <= self.reader.words_heard:
            raise _Left
        return is_whole


class Caller:
    """Makes attempts for the tenants of one run. Each tenant has connections of its own, as in life."""

    def __init__(self, target: Target, profile: Profile, run_id: int, worker: int) -> None:
        self.target = target
        self.run_id = run_id
        self.worker = worker
        self.clock = RunClock(0)
        self._places = {tenant.name: place for place, tenant in enumerate(profile.tenants)}
        self._writer = RequestWriter(target)
        self._redact = target.redactor()
        self._endpoint = Endpoint(target.host, target.port, target.tls, target.trust)
        self._addresses: list[Address] | None = None
        self._clients: dict[str, Http1Client] = {}
        self.room, self._max_body_bytes = Room(), MAX_BODY_BYTES
        """Of all connections of this process."""
        self.jobs = JobCaller(target, profile, run_id, self)
        """For durable jobs, over the same connections."""
        self._flavour = target.api
        polled = self._flavour.asks_after_s is not None
        self._polled = PolledCaller(target, self._writer, self) if polled else None

    def hold_to(self, connections: int, max_body_bytes: int) -> None:
        """How many connections there may be at once, and how long an answer's body; before the first call."""
        self.room, self._max_body_bytes = Room(connections), max_body_bytes

    def prepare(self, clock: RunClock) -> None:
        """Take the run's clock, look up the target's address. Raises UnreachableError for unknown names."""
        self.clock = clock
        try:
            self._addresses = resolve(self._endpoint)
        except ExchangeError as error:
            raise UnreachableError(f"the target's name cannot be resolved: {error.detail}") from None

    def call(self, arrival: Arrival, start: AttemptStart) -> Call:
        """Make one attempt. When the greenlet is killed meanwhile, the attempt ends as unfinished."""
        marker = marker_of(self.run_id, self._places[arrival.tenant], arrival, start.number)
        if self._polled is not None:
            return self._polled.call(arrival, marker, start)
        reader, began_ns = self.reader(arrival), self.clock.now_ns()
        request = self._writer.write(arrival, marker, began_ns, start)
        try:
            exchange = self._exchange(arrival.tenant, request, start, reader)
        except gevent.GreenletExit:
            result = reader.result(Ending.OPEN, began_ns, worker=self.worker)
        except _Left:
            result = reader.result(Ending.LEFT, began_ns, transport_error=LEFT, worker=self.worker)
        else:
            result = reader.result(
                ENDINGS[exchange.failure],
                exchange.sent_ns,
                transport_error=exchange.failure and exchange.failure.value,
                worker=self.worker,
                connection_reused=exchange.reused,
            )
            return Call(result, exchange.ended_ns, exchange.body_bytes, reader.token_arrivals_ns)
        return Call(result, self.clock.now_ns(), 0, reader.token_arrivals_ns)

    def reader(self, arrival: Arrival) -> ReplyReader:
        """Of one answer to this arrival's request."""
        return ReplyReader(
            self._flavour.as_stream(arrival.job.stream), arrival.seq, self._redact, self._flavour
        )

    def now_ns(self) -> int:
        """On the run's clock."""
        return self.clock.now_ns()

    def send(
        self, tenant: str, request: bytes, timeout_at_ns: int, reader: BodyReader | ReplyReader
    ) -> Exchange:
        """One exchange, whatever is asked."""
        client = self._clients.get(tenant) or self._new_client(tenant)
        return client.exchange(request, timeout_at_ns, reader)

    def connections(self) -> tuple[int, int, int]:
        """(opened, requests sent again, idle ones found closed), over all tenants."""
        clients = self._clients.values()
        return (
            sum(client.opened for client in clients),
            sum(client.resent for client in clients),
            sum(client.found_closed for client in clients),
        )

    def close(self) -> None:
        """Close the idle connections."""
        for client in self._clients.values():
            client.close()

    def _exchange(self, tenant: str, request: bytes, start: AttemptStart, reader: ReplyReader) -> Exchange:
        """Raises _Left when the client's patience ends, or it has read enough, before the answer does."""
        client = self._clients.get(tenant) or self._new_client(tenant)
        leave_ns = start.leave_at_ns
        if leave_ns is None and start.leave_after_tokens is None:
            return client.exchange(request, start.timeout_at_ns, reader)
        left_s = None if leave_ns is None else max(0.0, (leave_ns - self.clock.now_ns()) / 1e9)
        patience = gevent.Timeout(left_s)
        patience.start()
        try:
            quitter = _Quitter(reader, patience, start.leave_after_tokens)
            return client.exchange(request, start.timeout_at_ns, quitter)
        except gevent.Timeout as expired:
            if expired is not patience:
                raise
            raise _Left from None
        finally:
            patience.close()

    def _new_client(self, tenant: str) -> Http1Client:
        client = Http1Client(
            self._endpoint, self.clock.now_ns, self._addresses, self.room, self._max_body_bytes
        )
        self._clients[tenant] = client
        return client
