"""The gate before geventhttpclient (`FastHttpUser`): its hosts, its connections, the reading of its answers.

It sends an unanswered GET again by itself, for every connection of its pool: each of these passes the gate.
Imports locust's client: only the Locust processes may import this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakMethod, finalize

from geventhttpclient.response import HTTPSocketPoolResponse

from agentload.client.locust_reading import Reading
from agentload.client.wire import Ending
from agentload.drivers.locust_gate import Gate, Place
from agentload.drivers.locust_gate_requests import broken


def guard(agent: Any, gate: Gate) -> None:
    """Let nothing of this `UserAgent` out but through the gate."""
    inner: Callable[[Any], Any] = agent._urlopen

    def urlopen(request: Any) -> Any:
        gate.check(request.url_split.host)
        pool = agent.clientpool.get_client(request.url_split)._connection_pool
        if pool._connection_host != pool._request_host:
            gate.check(pool._connection_host)  # a proxy
        if isinstance(counted := getattr(pool, "agentload", None), _Counted):
            counted.gate = gate  # of another run, where the class has a pool of its own
        else:
            _Counted(pool, gate)
        response = inner(request)
        if gate.sender is not None:
            headers = [(str(name), str(value)) for name, value in response.headers.items()]
            _listen(
                response._response, gate.sender.listen(response.status_code, headers, gate.most_bytes), gate
            )
        return response

    agent._urlopen = urlopen


class _Counted:
    """A pool whose connections have places, from now on."""

    def __init__(self, pool: Any, gate: Gate) -> None:
        pool.agentload = self
        self.gate = gate
        self._places: WeakKeyDictionary[Any, Place] = WeakKeyDictionary()
        pool._socket_queue = _Idle(self._places)
        self._create, self._get = pool._create_socket, pool.get_socket
        self._put, self._release = pool.return_socket, pool.release_socket
        pool._create_socket, pool.get_socket = self._create_socket, self._get_socket
        pool.return_socket, pool.release_socket = self._return_socket, self._release_socket

    def _create_socket(self) -> Any:
        """Raises Refused."""
        place = self.gate.place()
        place.enter()
        try:
            made = self._create()
        except BaseException:
            place.leave()
            raise
        finalize(made, place.leave)
        self._places[made] = place
        return made

    def _get_socket(self) -> Any:
        self.gate.turn()
        found = self._get()
        self._forget_closed()
        self.gate.sent()
        return found

    def _return_socket(self, used: Any) -> None:
        if (place := self._places.get(used)) is not None:
            place.rest(WeakMethod(used.close))
        self._put(used)
        self._forget_closed()

    def _release_socket(self, used: Any) -> None:
        self._release(used)
        self._forget_closed()

    def _forget_closed(self) -> None:
        """Whoever closed them: the pool, when it found them dead; others, who needed their place."""
        for one, place in list(self._places.items()):
            if one.fileno() < 0:
                place.leave()


class _Idle:
    """Connections that rest, until they are taken: whoever needs a place must not close one that was."""

    def __init__(self, places: WeakKeyDictionary[Any, Place]) -> None:
        self._places, self._resting = places, list[Any]()

    def empty(self) -> bool:
        """As queues are."""
        return not self._resting

    def put(self, used: Any) -> None:
        """The pool never has more than it may."""
        self._resting.append(used)

    def get(self, block: bool = True) -> Any:  # noqa: ARG002
        """The last that was used; closed, if it may not be at work."""
        found = self._resting.pop()
        if not (place := self._places[found]).wake():
            found.close()
            place.leave()
        return found


class _HeardResponse(HTTPSocketPoolResponse):
    """An answer whose bytes are seen as they come, however large the pieces that are asked for."""

    agentload_reading: Reading
    agentload_gate: Gate

    def _on_body(self, buf: bytearray) -> None:
        super()._on_body(buf)
        reading = self.agentload_reading
        if not reading.feed(bytes(buf)):
            raise self.agentload_gate.too_long(reading)

    def _on_message_complete(self) -> None:
        self.agentload_reading.end(Ending.COMPLETE)
        super()._on_message_complete()

    def release(self) -> None:
        """It is over: it has been read, or will not be."""
        reading, error = self.agentload_reading, sys.exception()
        if reading.ending is None and not self.message_complete:
            if error is None:
                reading.end(Ending.LEFT)
            else:
                broken(reading, error, self.agentload_gate)
        super().release()

    def __del__(self) -> None:
        """Nobody looks at it any more."""
        reading = self.agentload_reading
        reading.end(Ending.LEFT, at_ns=reading.touched_ns)
        super().__del__()


def _listen(response: Any, reading: Reading, gate: Gate) -> None:
    """Some of it may have come with the head."""
    come, is_complete = bytes(response._body_buffer), response.message_complete
    response.__class__ = _HeardResponse
    response.agentload_reading, response.agentload_gate = reading, gate
    if come and not reading.feed(come):
        response.release()
        raise gate.too_long(reading)
    if is_complete:
        reading.end(Ending.COMPLETE)
