"""A thin HTTP/1.1 client for load: it sends what it is given exactly once and times every byte of the answer.

Libraries made for convenience hide what a load test must see: geventhttpclient sends an unanswered GET again
for every connection in its pool, Locust's FastHttpUser holds a stream back until it has 1,024 bytes, and most
time-outs count from one read to the next. Here one deadline covers a whole exchange, chunks are handed on
with the time of their arrival, and nothing is sent twice. The one exception is counted and reported: when a
kept-alive connection turns out to have been closed before the request reached the server's kernel.
"""

from __future__ import annotations

import errno
import select
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import gevent
import gevent.socket as socket
import msgspec
from gevent import monkey
from gevent import ssl as gevent_ssl

from agentload.drivers import tls
from agentload.drivers.http1_answer import MAX_BODY_BYTES, Answer, ExchangeError, Failure
from agentload.drivers.room import Room
from agentload.targets._tls import Trust

RECEIVE_BYTES = 32 * 1024
IDLE_LIMIT_NS = 30 * 1_000_000_000
"""Kept-alive connections unused for longer are closed, so that a burst does not leave its sockets behind."""
READS_BEFORE_YIELD = 8
"""Reads in a row before others, and the alarm of the exchange, get their turn: a server whose next bytes are
always there already would otherwise never let go."""
LINGER_S = 0.1
"""How long the end of a message is waited for after all that mattered has come."""

_poll: Callable[[], Any] = monkey.get_original("select", "poll")
_LOCAL_ERRORS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}
_TCP_INFO_BYTES = 232
_TCP_INFO_BYTES_ACKED_OFFSET = 120


class Endpoint(NamedTuple):
    """Where requests go."""

    host: str
    port: int
    tls: bool = False
    trust: Trust | None = None
    """None: the system's authorities."""


class Address(NamedTuple):
    """One way to reach an endpoint."""

    family: int
    address: Any


def resolve(endpoint: Endpoint) -> list[Address]:
    """The endpoint's addresses. Look them up once a run: name servers are not under test.

    Raises ExchangeError when the name is unknown.
    """
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ExchangeError(Failure.NAME, f"{endpoint.host}: {error}") from None
    return [Address(family, address) for family, _, _, _, address in found]


class Listener(Protocol):
    """Who wants to hear of an answer while it arrives."""

    def head(self, status: int, headers: list[tuple[bytes, bytes]], now_epoch_s: float) -> None:
        """The final status (not 1xx) and the headers as they came; the wall clock is for dates in them."""
        ...

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Some bytes of the body, without transfer coding. True: nothing more needs to be waited for."""
        ...


class Exchange(msgspec.Struct, gc=False):
    """What became of one request. Times are those of the client's clock."""

    sent_ns: int
    """When the client set about it: before connecting, where there was no idle connection."""
    connected_ns: int
    ended_ns: int
    first_byte_ns: int | None = None
    status: int = 0
    body_bytes: int = 0
    enough: bool = False
    """The listener had heard enough before (or as) the message ended: `ended_ns` is that moment."""
    reused: bool = False
    """It went over a connection that had served a request before."""
    resent: bool = False
    """A stale connection had swallowed it unread; it was sent again on a fresh one."""
    failure: Failure | None = None
    detail: str = ""


class Connection:
    """A socket with its history."""

    __slots__ = ("_poller", "_room", "idle_since_ns", "sent_bytes", "socket", "used")

    def __init__(self, sock: Any, room: Room) -> None:
        """Of a place in the room that has been taken."""
        self.socket = sock
        self._room = room
        self._poller = _poll()
        self._poller.register(sock.fileno(), select.POLLIN)
        self.used = False
        self.sent_bytes = 0
        self.idle_since_ns = 0

    def close(self) -> None:
        """Close it. Once."""
        self.socket.close()
        self._room.work(self)
        self._room.leave()

    def is_quiet(self) -> bool:
        """Nothing to read: an idle connection with something to read is closed or holds stray bytes."""
        return not self._poller.poll(0)

    def request_never_arrived(self, request_bytes: int) -> bool:
        """The server's kernel acknowledged nothing of the last request (so it had closed before it came).

        Only meaningful after an orderly close: a reset may overtake the acknowledgement. `tcpi_bytes_acked`
        counts the SYN as one. False where the kernel does not say.
        """
        if sys.platform != "linux":
            return False
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        if len(info) < _TCP_INFO_BYTES_ACKED_OFFSET + 8:
            return False
        (acked,) = struct.unpack_from("=Q", info, _TCP_INFO_BYTES_ACKED_OFFSET)
        return bool(acked <= self.sent_bytes - request_bytes + 1)


class Http1Client:
    """Requests to one endpoint, over as many connections as there are requests at once.

    Idle connections are kept (last in, first out), as many as the room has places for: the caller bounds the
    requests in flight.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        addresses: list[Address] | None = None,
        room: Room | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """`room` may be shared with other clients."""
        self.room = room or Room()
        self.max_body_bytes = max_body_bytes
        self.endpoint = endpoint
        self.clock_ns = clock_ns
        self.addresses = addresses
        """From `resolve`; None: looked up before the first request, within its deadline."""
        self.opened = 0
        """Connections made."""
        self.resent = 0
        """Requests sent again because their connection had been closed before they arrived."""
        self.found_closed = 0
        """Idle connections found closed by the server before they were used again."""
        self._idle: deque[Connection] = deque()
        unverified: Any = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if endpoint.tls else None
        self._tls = unverified and tls.trusting(unverified, endpoint.trust)

    def exchange(self, request: bytes, deadline_ns: int, listener: Listener) -> Exchange:
        """Send the bytes of one request and hear its answer out, until `deadline_ns` at the latest.

        Never raises for what the network or the server does: see `Exchange.failure`.
        """
        now_ns = self.clock_ns()
        result = Exchange(now_ns, now_ns, now_ns)
        timer = _alarm(max(0.0, (deadline_ns - now_ns) / 1e9))
        try:
            self._send_once(request, listener, result)
        except _DeadlinePassed:
            if not result.enough:
                self._fail(result, Failure.TIMEOUT, "the deadline of the exchange passed")
        except ExchangeError as error:
            self._fail(result, error.failure, error.detail)
        finally:
            timer.stop()
            timer.close()
        return result

    def _fail(self, result: Exchange, failure: Failure, detail: str) -> None:
        result.failure, result.detail, result.ended_ns = failure, detail, self.clock_ns()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _send_once(self, request: bytes, listener: Listener, result: Exchange) -> None:
        connection = self._idle_connection()
        if connection is not None:
            result.reused = True
            try:
                self._converse(connection, request, listener, result)
                return
            except _NeverArrived:
                self.resent += 1
                result.resent, result.reused = True, False
        self._converse(self._connect(result), request, listener, result)

    def _converse(self, connection: Connection, request: bytes, listener: Listener, result: Exchange) -> None:
        answer = Answer(self.max_body_bytes)
        try:
            self._transmit(connection, request)
            self._receive(connection, answer, listener, result)
            if not answer.complete:
                self._linger(connection, answer)
        except (OSError, ExchangeError) as error:
            problem = _problem(connection, len(request), result, error)
            connection.close()
            raise problem from None
        except BaseException:
            connection.close()
            raise
        self._release(connection, answer.reusable and not answer.surplus, result.ended_ns)

    def _transmit(self, connection: Connection, request: bytes) -> None:
        connection.sent_bytes += len(request)
        try:
            sent = connection.socket.send(request)
            if sent < len(request):
                connection.socket.sendall(memoryview(request)[sent:])
        except ConnectionError:
            pass  # a server may answer (413, say) and close before it has read everything: read its answer

    def _receive(self, connection: Connection, answer: Answer, listener: Listener, result: Exchange) -> None:
        receive, clock_ns, announced, reads = connection.socket.recv, self.clock_ns, False, 0
        while not answer.complete and not result.enough:
            if (reads := reads + 1) % READS_BEFORE_YIELD == 0:
                gevent.sleep(0)
            data = receive(RECEIVE_BYTES)
            now_ns = clock_ns()
            if data:
                if result.first_byte_ns is None:
                    result.first_byte_ns = now_ns
                answer.feed(data)
            else:
                answer.end_of_stream()
            if answer.has_head and not announced:
                announced = True
                result.status = answer.status
                listener.head(answer.status, answer.headers, time.time())
            chunks, answer.chunks = answer.chunks, []
            for chunk in chunks:
                result.enough = listener.feed(chunk, now_ns) or result.enough
            result.ended_ns = now_ns
            result.body_bytes = answer.body_bytes
            if answer.error is not None:
                raise answer.error

    def _linger(self, connection: Connection, answer: Answer) -> None:
        """All that mattered has come: wait a moment for the end of the message, to keep the connection."""
        sock, until_ns = connection.socket, self.clock_ns() + round(LINGER_S * 1e9)
        sock.settimeout(LINGER_S)
        with suppress(OSError):
            while not answer.complete and answer.error is None and self.clock_ns() < until_ns:
                if not (data := sock.recv(RECEIVE_BYTES)):
                    break
                answer.feed(data)
                gevent.sleep(0)
        sock.settimeout(None)

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet():
                self.room.work(connection)
                return connection
            self.found_closed += 1
            connection.close()
        return None

    def _release(self, connection: Connection, reusable: bool, now_ns: int) -> None:
        if not reusable:
            connection.close()
            return
        connection.used = True
        connection.idle_since_ns = now_ns
        self._idle.append(connection)
        self.room.rest(connection, lambda: self._give_way(connection))
        while now_ns - self._idle[0].idle_since_ns > IDLE_LIMIT_NS:
            self._idle.popleft().close()

    def _give_way(self, connection: Connection) -> None:
        self._idle.remove(connection)
        connection.close()

    def _connect(self, result: Exchange) -> Connection:
        if self.addresses is None:
            self.addresses = resolve(self.endpoint)
        problem = ExchangeError(Failure.NAME, f"{self.endpoint.host} has no address")
        for address in self.addresses:
            self.room.enter()
            try:
                sock = self._open(address)
            except BaseException as error:
                self.room.leave()
                if not isinstance(error, OSError):
                    raise
                problem = _connect_problem(self.endpoint, error)
            else:
                self.opened += 1
                result.connected_ns = self.clock_ns()
                return Connection(sock, self.room)
        raise problem

    def _open(self, address: Address) -> Any:
        sock: Any = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.connect(address.address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self.endpoint.host)
        except BaseException:
            sock.close()
            raise
        return sock


class _DeadlinePassed(BaseException):
    """Thrown into an exchange by its alarm."""


def _alarm(seconds: float) -> Any:
    """A started timer that throws into the current greenlet: `gevent.Timeout` at a fifth of its price."""
    hub: Any = gevent.get_hub()
    timer = hub.loop.timer(seconds, priority=-1)
    timer.start(gevent.getcurrent().throw, _DeadlinePassed, update=True)
    return timer


class _NeverArrived(Exception):
    """The request may be sent again: the server cannot have seen it."""


def _connect_problem(endpoint: Endpoint, error: OSError) -> ExchangeError:
    where = f"{endpoint.host}:{endpoint.port}"
    if isinstance(error, ssl.SSLError):
        return ExchangeError(Failure.TLS, f"{where}: {tls.trouble(error)}")
    if error.errno in _LOCAL_ERRORS:
        return ExchangeError(Failure.EXHAUSTED, f"{where}: {error}")
    refused = isinstance(error, ConnectionRefusedError)
    return ExchangeError(Failure.REFUSED if refused else Failure.UNREACHABLE, f"{where}: {error}")


def _problem(
    connection: Connection, request_bytes: int, result: Exchange, error: OSError | ExchangeError
) -> ExchangeError | _NeverArrived:
    if isinstance(error, ExchangeError) and error.failure is not Failure.NO_ANSWER:
        return error
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ExchangeError(Failure.TLS, tls.trouble(error))
    if connection.used and result.first_byte_ns is None:
        if isinstance(error, ExchangeError) and connection.request_never_arrived(request_bytes):
            return _NeverArrived()
        return ExchangeError(Failure.STALE, f"a kept-alive connection ended without an answer: {error}")
    return error if isinstance(error, ExchangeError) else ExchangeError(Failure.RESET, str(error))
