"""The gate before sessions of requests (`HttpUser`): their hosts, connections, and the reading of answers.

Every hop of a redirect, and every attempt of an adapter that tries again, passes it. Imports locust's client:
only the Locust processes may import this.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import LifoQueue
from typing import Any
from weakref import WeakMethod, finalize

import gevent
import urllib3
from requests.utils import select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import parse_url

from agentload.client.locust_reading import Reading
from agentload.client.wire import Ending
from agentload.drivers.locust_gate import Gate, Place


def guard(client: Any, gate: Gate) -> None:
    """Let nothing of this session out but through the gate."""
    inner: Callable[..., Any] = client.get_adapter

    def get_adapter(url: str) -> Any:
        return _GatedAdapter(inner(url), gate)

    client.get_adapter = get_adapter


class _GatedAdapter:
    """An adapter of requests, whoever mounted it, for one hop."""

    def __init__(self, inner: Any, gate: Gate) -> None:
        self._inner, self._gate = inner, gate

    def send(self, request: Any, **named: Any) -> Any:
        """The answer's head. Raises Refused."""
        gate, inner = self._gate, self._inner
        gate.check(parse_url(request.url).host)
        if (proxy := select_proxy(request.url, named.get("proxies"))) is not None:
            gate.check(parse_url(proxy).host)
            _count(inner.proxy_manager_for(proxy), gate)
        if not _count(getattr(inner, "poolmanager", None), gate):
            gate.turn()  # an adapter of another make: its connections are its own affair
        response = inner.send(request, **named)
        if gate.sender is not None and isinstance(response.raw, urllib3.HTTPResponse):
            headers = [(str(name), str(value)) for name, value in response.headers.items()]
            _listen(response.raw, gate.sender.listen(response.status_code, headers, gate.most_bytes), gate)
        return response

    def close(self) -> None:
        """As adapters are."""
        self._inner.close()


def _count(manager: Any, gate: Gate) -> bool:
    """From now on its connections are counted, and each request waits for its turn."""
    if type(manager) not in (urllib3.PoolManager, urllib3.ProxyManager):
        return False
    if getattr(manager, "agentload", None) is not gate:
        manager.clear()
        manager.pool_classes_by_scheme = _pool_classes(gate)
        manager.agentload = gate
    return True


def _pool_classes(gate: Gate) -> dict[str, type[HTTPConnectionPool]]:
    """Pools that count: urllib3 asks a manager for its classes."""

    class Connection(_Counted, HTTPConnection):
        pass

    class SecureConnection(_Counted, HTTPSConnection):
        pass

    class Pool(_Counting, HTTPConnectionPool):
        ConnectionCls: Any = Connection

    class SecurePool(_Counting, HTTPSConnectionPool):
        ConnectionCls: Any = SecureConnection

    for one in (Connection, SecureConnection, Pool, SecurePool):
        one.gate = gate
    return {"http": Pool, "https": SecurePool}


class _Counted:
    """Mixed into a connection."""

    gate: Gate
    place: Place | None = None

    def connect(self) -> None:
        """Raises Refused."""
        if self.place is None:
            self.place = self.gate.place()
            finalize(self, self.place.leave)
        self.place.enter()
        try:
            super().connect()  # type: ignore[misc]
        except BaseException:
            self.place.leave()
            raise
        self.gate.sent()

    def close(self) -> None:
        """Any number of times."""
        super().close()  # type: ignore[misc]
        if self.place is not None:
            self.place.leave()


class _Idle(LifoQueue[Any]):
    """Connections that rest, until they are taken: whoever needs a place must not close one that was."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """See queue."""
        found = super().get(block, timeout)
        if found is not None and found.place is not None and not found.place.wake():
            found.close()
        return found


class _Counting:
    """Mixed into a pool of such connections: each request takes one, and puts it back when it is answered."""

    gate: Gate
    QueueCls = _Idle

    def _get_conn(self, timeout: float | None = None) -> Any:
        self.gate.turn()
        found: Any = super()._get_conn(timeout=timeout)  # type: ignore[misc]
        self.gate.sent()
        return found

    def _put_conn(self, conn: Any) -> None:
        if conn is not None and conn.place is not None:
            conn.place.rest(WeakMethod(conn.close))
        super()._put_conn(conn)  # type: ignore[misc]


class _HeardResponse(urllib3.HTTPResponse):
    """An answer whose reading is seen."""

    agentload_reading: Reading
    agentload_gate: Gate
    agentload_reads = False
    """Inside urllib3, which closes an answer that it finds broken before it says so."""

    def read(self, *arguments: Any, **named: Any) -> bytes:
        """See urllib3."""
        with self._seen():
            data = super().read(*arguments, **named)
        self._heard(data, is_last=self.closed)
        return data

    def read1(self, *arguments: Any, **named: Any) -> bytes:
        """See urllib3."""
        with self._seen():
            data = super().read1(*arguments, **named)
        self._heard(data, is_last=self.closed)
        return data

    def read_chunked(self, *arguments: Any, **named: Any) -> Generator[bytes]:
        """See urllib3."""
        chunks = super().read_chunked(*arguments, **named)
        while True:
            with self._seen():
                data = next(chunks, None)
            self._heard(data, is_last=data is None)
            if data is None:
                return
            try:
                yield data
            except GeneratorExit:  # urllib3 closes the connection then, whatever else is read
                self.agentload_reading.end(Ending.LEFT)
                raise

    def close(self) -> None:
        """Whoever closes it has read what it wanted."""
        if not self.agentload_reads:
            self.agentload_reading.end(Ending.LEFT)
        super().close()

    def __del__(self) -> None:
        """Nobody looks at it any more."""
        reading = self.agentload_reading
        reading.end(Ending.LEFT, at_ns=reading.touched_ns)
        super().__del__()

    def _heard(self, data: bytes | None, *, is_last: bool) -> None:
        reading = self.agentload_reading
        if data and not reading.feed(data):
            self.close()
            raise self.agentload_gate.too_long(reading)
        if is_last:
            reading.end(Ending.COMPLETE)

    @contextmanager
    def _seen(self) -> Generator[None]:
        self.agentload_reads = True
        try:
            yield
        except BaseException as error:
            broken(self.agentload_reading, error, self.agentload_gate)
            raise
        finally:
            self.agentload_reads = False


def broken(reading: Reading, error: BaseException, gate: Gate) -> None:
    """It is not read any further because of this."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    reading.gone = isinstance(error, gevent.GreenletExit)
    reading.timed_out = "Timeout" in kinds or "TimeoutError" in kinds
    if reading.gone:
        reading.end(Ending.OPEN if gate.is_over() else Ending.LEFT)
    elif reading.timed_out:
        reading.end(Ending.LEFT)
    else:
        reading.end(Ending.CUT, f"{type(error).__name__}: {error}")


def _listen(raw: urllib3.HTTPResponse, reading: Reading, gate: Gate) -> None:
    raw.__class__ = _HeardResponse
    raw.agentload_reading, raw.agentload_gate = reading, gate  # type: ignore[attr-defined]
    if raw.closed:
        reading.end(Ending.COMPLETE)
