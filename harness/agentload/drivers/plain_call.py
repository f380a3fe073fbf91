"""Calls to a target over one plain connection, each bounded as a whole in time and in what it takes in.

For what may be answered by anybody: a probe, a health page, a gauge. Nothing is followed, unpacked or sent
twice, but where a connection that was kept turns out to be closed.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self, TypeVar

from agentload import __version__
from agentload.drivers import tls
from agentload.drivers.http1_answer import Answer, Failure
from agentload.drivers.probe import SMALL, Bounds, Reply, not_connected
from agentload.errors import UnreachableError
from agentload.targets._tls import Trust
from agentload.targets._urls import split_url

_READ_BYTES = 65_536
T = TypeVar("T")
Fields = Iterable[tuple[str, str]]


class Line:
    """Calls to one server, one at a time; a context manager."""

    def __init__(self, url: str, what: str, trust: Trust | None = None) -> None:
        """`url`: scheme, host and port; what follows is left out. `what` names the server in messages."""
        self._address, self._what = split_url(url.partition("?")[0]), what
        self._context = tls.context(trust) if self._address.tls else None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The kept connection, if any."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(
        self, method: str, path: str, fields: Fields = (), body: bytes | None = None, bounds: Bounds = SMALL
    ) -> Reply:
        """One call and its whole answer, whatever its status. Raises UnreachableError with one line."""
        until_s = time.monotonic() + bounds.seconds
        request = self._request(method, path, fields, body)
        return self._in_words(lambda: self._kept_or_new(request, until_s, bounds), path, bounds)

    def connect(self, bounds: Bounds = SMALL) -> None:
        """Only connect, and close. Raises as above."""
        until_s = time.monotonic() + bounds.seconds
        self._in_words(lambda: self._connect(until_s).close(), "", bounds)

    def _in_words(self, do: Callable[[], T], path: str, bounds: Bounds) -> T:
        try:
            return do()
        except TimeoutError:
            problem = f"no answer within {bounds.seconds:g} s"
        except ssl.SSLError as error:
            problem = tls.trouble(error)
        except _Unusable as error:
            problem = str(error)
        except OSError as error:
            problem = not_connected(error)
        self.close()
        raise UnreachableError(f"{self._what} at {self._address.root}{path}: {problem}")

    def _kept_or_new(self, request: bytes, until_s: float, bounds: Bounds) -> Reply:
        if self._socket is not None:
            kept, self._socket = self._socket, None
            with suppress(_Closed, ConnectionError):
                return self._converse(kept, request, until_s, bounds)
        return self._converse(self._connect(until_s), request, until_s, bounds)

    def _connect(self, until_s: float) -> socket.socket:
        address = self._address
        sock = socket.create_connection((address.host, address.port), timeout=_left(until_s))
        if self._context is None:
            return sock
        try:
            sock.settimeout(_left(until_s))
            return self._context.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise

    def _converse(self, sock: socket.socket, request: bytes, until_s: float, bounds: Bounds) -> Reply:
        answer, body = Answer(bounds.body_bytes), bytearray()
        keep = False
        try:
            sock.settimeout(_left(until_s))
            with suppress(ConnectionError, ssl.SSLEOFError):  # it may answer before it has read everything
                sock.sendall(request)
            while not answer.complete:
                sock.settimeout(_left(until_s))
                data = sock.recv(_READ_BYTES)
                answer.feed(data) if data else answer.end_of_stream()
                chunks, answer.chunks = answer.chunks, []
                body += b"".join(chunks)
                if answer.error is not None:
                    raise _unusable(answer.error.failure, bounds)
            keep = answer.reusable and not answer.surplus
        finally:
            if keep:
                self._socket = sock
            else:
                sock.close()
        return _reply(answer, bytes(body))

    def _request(self, method: str, path: str, fields: Fields, body: bytes | None) -> bytes:
        host = self._address.root.partition("://")[2]
        own = [("Host", host), ("User-Agent", f"agentload/{__version__}"), ("Accept-Encoding", "identity")]
        if body is not None:
            own += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        lines = "".join(f"{name}: {value}\r\n" for name, value in (*own, *fields))
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + (body or b"")


class _Unusable(Exception):
    """An answer that is none; its text is for people, and holds nothing of the answer."""


class _Closed(_Unusable):
    """The connection ended without one byte of an answer."""


def _unusable(failure: Failure, bounds: Bounds) -> _Unusable:
    match failure:
        case Failure.TOO_LARGE:
            return _Unusable(f"answered with more than {bounds.body_bytes} bytes, or an endless head")
        case Failure.NO_ANSWER:
            return _Closed("closes the connection without an answer")
        case Failure.CUT_OFF:
            return _Unusable("closes the connection before the end of its answer")
        case _:
            return _Unusable("does not speak HTTP (its answer is malformed)")


def _reply(answer: Answer, body: bytes) -> Reply:
    fields = {name.lower(): value.decode("latin-1").strip() for name, value in reversed(answer.headers)}
    if fields.get(b"content-encoding", "identity").lower() != "identity":
        raise _Unusable("answered with a Content-Encoding that nobody asked for")
    return Reply(answer.status, fields.get(b"content-type", ""), body, fields.get(b"location", ""))


def _left(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
