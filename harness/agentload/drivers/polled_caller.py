"""One attempt whose answer is asked for, over the network: `client.polling` says what to send and when."""

from __future__ import annotations

from typing import Protocol

import gevent

from agentload.client.logical import AttemptStart
from agentload.client.polling import Ask, Heard, Kind, Polling
from agentload.client.wire import Ending, ReplyReader, RequestWriter
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.http1 import Exchange
from agentload.drivers.http1_answer import Failure
from agentload.model import Arrival
from agentload.targets import Target
from fake_provider.marker import Marker

ENDINGS: dict[Failure | None, Ending] = {
    None: Ending.COMPLETE,
    **dict.fromkeys(Failure, Ending.CUT),
    Failure.TIMEOUT: Ending.LEFT,
    Failure.EXHAUSTED: Ending.UNSENT,
}


class Line(Protocol):
    """Who has the connections: `Caller`."""

    clock: RunClock
    worker: int

    def send(self, tenant: str, request: bytes, timeout_at_ns: int, reader: ReplyReader) -> Exchange: ...

    def reader(self, arrival: Arrival) -> ReplyReader: ...


class PolledCaller:
    """Makes such attempts at one target. It only waits and sends."""

    def __init__(self, target: Target, writer: RequestWriter, line: Line) -> None:
        self._target = target
        self._writer = writer
        self._line = line

    def call(self, arrival: Arrival, marker: Marker, start: AttemptStart) -> Call:
        """Make one attempt. When the greenlet is killed meanwhile, the attempt ends as unfinished."""
        clock, body_bytes = self._line.clock, 0
        polling = Polling(self._target, start, clock.now_ns())
        while (ask := polling.next_ask()) is not None:
            if not self._wait_until(ask.due_ns):
                polling.stopped()
            elif ask.kind is Kind.LEAVE:
                polling.left()
            else:
                heard, size = self._exchange(ask, arrival, marker, start)
                body_bytes += size
                polling.heard(clock.now_ns(), ask, heard)
        ended_ns = clock.now_ns() if polling.left_ns is None else polling.left_ns
        return Call(polling.result(self._line.worker), ended_ns, body_bytes)

    def _exchange(self, ask: Ask, arrival: Arrival, marker: Marker, start: AttemptStart) -> tuple[Heard, int]:
        reader, began_ns = self._line.reader(arrival), self._line.clock.now_ns()
        if ask.kind is Kind.BEGIN:
            request = self._writer.write(arrival, marker, began_ns, start)
        elif ask.kind is Kind.CANCEL:
            request = self._writer.write_cancel(arrival, ask.method, ask.path)
        else:
            request = self._writer.write_poll(arrival, ask.path)
        try:
            exchange = self._line.send(arrival.tenant, request, ask.timeout_at_ns, reader)
        except gevent.GreenletExit:
            return Heard(reader=reader, ending=Ending.OPEN, sent_ns=began_ns), 0
        error = exchange.failure and exchange.failure.value
        heard = Heard(
            reader=reader,
            ending=ENDINGS[exchange.failure],
            error=error,
            sent_ns=exchange.sent_ns,
            reused=exchange.reused,
        )
        return heard, exchange.body_bytes

    def _wait_until(self, due_ns: int) -> bool:
        """False when the run was stopped meanwhile."""
        try:
            self._line.clock.sleep_until(due_ns)
        except gevent.GreenletExit:
            return False
        return True
