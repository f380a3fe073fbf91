"""A load generator: one process, one share of the plan, driven through Locust.

python -m agentload.drivers.locust_worker HOST PORT        (`agentload worker HOST:PORT`)
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse
import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import Any

import gevent
import locust.runners
import msgspec
from gevent.event import Event
from gevent.queue import Queue
from locust.exception import RPCError

from agentload.drivers.bookkeeper import Bookkeeper
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.heartbeat import BEAT_NS, ProcessorUse, StallFinder, resident_bytes
from agentload.drivers.load import Load
from agentload.drivers.locust_common import (
    CONTEXT,
    PLANNED,
    log_to_stderr,
    payload,
    shard_class,
    with_payload,
    worker_environment,
)
from agentload.drivers.locust_users import OwnUsers
from agentload.drivers.parent import exit_with_parent
from agentload.drivers.part import Part
from agentload.drivers.processes import die_with_parent
from agentload.drivers.protocol import (
    Assignment,
    ClockReading,
    Message,
    Ready,
    Report,
    Start,
    Stop,
    WorkerState,
    clock_offset_ns,
)
from agentload.drivers.tally import Tally
from agentload.drivers.ticker import make_ticker
from agentload.errors import AgentloadError
from agentload.model import JobRecord, Outcome, RequestRecord, Stall

REPORT_INTERVAL_S = 0.5
CLOCK_READINGS = 8
MASTER_SILENCE_S = 10
"""Locust's own limit is 60 s: so long would orphans keep loading the target."""

REACHABLE_S = 3.0

log = logging.getLogger(__name__)


class Worker:
    """Does what the master says, and reports."""

    environment: Any
    runner: Any

    def __init__(self) -> None:
        """Knows no master yet: see `connect` and `attach`."""
        self._encode = msgspec.json.Encoder().encode_lines
        self.own: OwnUsers | None = None
        """Users of tenants' own code."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.part: Part | None = None
        self.load: Load | None = None
        self.clock = RunClock(0)
        self.books = Bookkeeper(Tally(), self._tell)
        self.stalls: list[Stall] = []
        self._jobs: list[JobRecord] = []
        self._records_total = 0
        self._sequence = 0
        self._outbox: list[bytes] = []
        self._readings: Queue[tuple[int, int, int]] = Queue()
        self._start: Start | None = None
        self._may_start = Event()
        self._over = Event()
        self._stop_drain_s: float | None = None
        self._use = ProcessorUse()
        self._clock_offset_ns = 0
        if self.own is not None:
            self.own.leave()
        self.own = None

    def connect(self, host: str, port: int) -> None:
        """Be a worker of our master there; blocks until it answers."""
        environment: Any = worker_environment(shard_class(self.run_share))
        self.attach(environment, environment.create_worker_runner(host, port))
        self.say_hello()

    def say_hello(self) -> None:
        """Tell the master that its words are heard."""
        self._send(Message.HELLO, msgspec.msgpack.encode({"pid": os.getpid(), "host": socket.gethostname()}))

    def attach(self, environment: Any, runner: Any) -> None:
        """Hear what comes over this runner. Another assignment is another run."""
        self.environment, self.runner = environment, runner
        for message, handler, concurrent in (
            (Message.CLOCK, self._on_clock, False),
            (Message.ASSIGN, self._on_assign, True),
            (Message.START, self._on_start, False),
            (Message.STOP, self._on_stop, False),
        ):
            self.runner.register_message(message.value, handler, concurrent)

    def work(self) -> None:
        """Until the master lets us go."""
        while True:
            try:
                self.runner.greenlet.join()
            except SystemExit as error:
                if self.own is None or not self.own.exited(error):
                    raise
            else:
                return

    def run_share(self) -> None:
        """Play the share: called by Locust's one user, once the master has had it spawned."""
        if self.part is None or self.own is None or self.load is not None:
            return
        self._may_start.wait()
        assert self._start is not None
        self._prepare(self.part, self.own, self._start)
        assert self.load is not None
        beating, reporting = gevent.spawn(self._beat, self.part.index), gevent.spawn(self._report_until_over)
        if self._stop_drain_s is not None:
            self._end_early(self._stop_drain_s)
        own: gevent.Greenlet[..., None] = gevent.spawn(self.own.run)
        self.load.run()
        own.join()
        beating.kill()
        self._over.set()
        reporting.join()
        self._report(final=True)
        self.part.caller.close()

    # -- messages

    def _on_assign(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        assignment = msgspec.msgpack.decode(payload(msg), type=Assignment)
        self._begin_anew()
        try:
            # In a thread: drawing a long plan takes seconds, and a worker without a heartbeat counts as lost.
            part: Part = gevent.get_hub().threadpool.apply(Part, (assignment,))
            # Not in a thread: what the users' files make belongs to the hub of the thread that imports them.
            self.own = OwnUsers(self.environment, part)
        except AgentloadError as error:
            ready = Ready(index=assignment.index, error="; ".join(error.lines))
        except Exception as error:
            log.exception("the assignment cannot be played")
            ready = Ready(index=assignment.index, error=f"{type(error).__name__}: {error}")
        else:
            self.part = part
            unrecorded = [phase.name for phase in part.profile.phases if not phase.record]
            unplanned = [share.tenant.name for share in part.own]
            self.books = Bookkeeper(Tally(unrecorded, unplanned), self._tell)
            self._clock_offset_ns = self._compare_clocks()
            ready = Ready(
                index=part.index,
                fingerprint=part.fingerprint,
                scheduled=len(part.share.arrivals),
                in_flight_cap=part.cap,
            )
        self._send(Message.READY, msgspec.msgpack.encode(ready))

    def _on_clock(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        reading = msgspec.msgpack.decode(payload(msg), type=ClockReading)
        self._readings.put((reading.asked_ns, reading.master_ns, time.monotonic_ns()))

    def _on_start(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        self._start = msgspec.msgpack.decode(payload(msg), type=Start)
        self._may_start.set()

    def _on_stop(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        self._stop_drain_s = msgspec.msgpack.decode(payload(msg), type=Stop).drain_s
        if self.load is not None:
            self._end_early(self._stop_drain_s)

    def _end_early(self, drain_s: float) -> None:
        assert self.load is not None
        assert self.own is not None
        self.load.stop(drain_s)
        self.own.stop(drain_s)

    def _compare_clocks(self) -> int:
        """What to add to the master's monotonic clock to get ours."""
        if isinstance(self.runner, locust.runners.LocalRunner):
            return 0  # it is its own master
        readings: list[tuple[int, int, int]] = []
        for _ in range(CLOCK_READINGS):
            reading = ClockReading(asked_ns=time.monotonic_ns())
            self._send(Message.CLOCK, msgspec.msgpack.encode(reading))
            readings.append(self._readings.get(timeout=10))
        return clock_offset_ns(readings)

    # -- the run

    def _prepare(self, part: Part, own: OwnUsers, start: Start) -> None:
        self.clock = RunClock(start.t0_ns + self._clock_offset_ns)
        part.caller.prepare(self.clock)
        own.prepare(self.clock, self.books)
        jobs = (part.caller.jobs, self._jobs.append)
        self.load = load = Load(part.share, part.caller, self.clock, self.books.tally, self.books.keep, jobs)
        gate = own.book.gate
        gate.allowance, gate.beside, load.beside = load.allowance, lambda: load.in_flight, lambda: gate.busy
        gc.collect()
        gc.freeze()
        self._use = ProcessorUse()

    def _tell(self, record: RequestRecord, call: Call) -> None:
        """Locust's listeners: its statistics, and whoever else has asked."""
        if record.outcome is Outcome.UNSENT:
            return
        try:
            self.environment.events.request.fire(
                request_type="POST",
                name=record.tenant,
                response_time=(record.ended_ns - record.due_ns) / 1e6,
                response_length=call.body_bytes,
                exception=None if record.outcome is Outcome.ANSWERED else _exception(record),
                context={CONTEXT: PLANNED},
            )
        except Exception:  # Locust lets through those by which a listener ends a user; here is none to end
            log.exception("a listener to Locust's request event")

    def _beat(self, index: int) -> None:
        ticker, finder = make_ticker(), StallFinder(self.clock.now_ns(), f"worker-{index}")
        try:
            while True:
                self.clock.tick_until(ticker, self.clock.now_ns() + BEAT_NS)
                stall = finder.beat(self.clock.now_ns())
                if stall is not None:
                    self.stalls.append(stall)
                self.books.settle()
        finally:
            ticker.close()

    # -- reports

    def _report_until_over(self) -> None:
        while not self._over.wait(REPORT_INTERVAL_S):
            self._report()

    def _report(self, final: bool = False) -> None:
        """Hand over what has happened since the last report; kept until Locust has taken it."""
        self._outbox.append(msgspec.msgpack.encode(self._next_report(final)))
        try:
            while self._outbox:
                self._send(Message.REPORT, self._outbox[0])
                del self._outbox[0]
        except RPCError:
            log.exception("a report could not be sent; it stays in the outbox")

    def _next_report(self, final: bool) -> Report:
        assert self.part is not None
        records = self.books.take_records()
        stalls, self.stalls = self.stalls, []
        jobs = self._encode(self._jobs)
        self._jobs.clear()
        counts, histograms = self.books.tally.take()
        self._sequence += 1
        self._records_total += len(records)
        return Report(
            index=self.part.index,
            sequence=self._sequence,
            records=self._encode(records),
            records_total=self._records_total,
            counts=counts,
            histograms=histograms,
            stalls=stalls,
            state=self._state(self.part),
            final=final,
            jobs=jobs,
        )

    def _state(self, part: Part) -> WorkerState:
        assert self.load is not None
        assert self.own is not None
        cpu, waited = self._use.shares()
        opened, resent, found_closed = part.caller.connections()
        return WorkerState(
            scheduled=self.load.scheduled + self.own.book.issued,
            issued=self.load.issued + self.own.book.issued,
            user_errors=self.own.errors,
            ended_by_users=self.own.ended_by,
            withheld=self.own.book.gate.book.kinds(),
            capped=self.load.capped,
            peak_in_flight=self.load.peak_in_flight,
            cpu=cpu,
            cpu_s=self._use.cpu_s(),
            run_queue_wait=waited,
            resident_bytes=resident_bytes(),
            connections_opened=opened,
            resent=resent,
            found_closed=found_closed,
            clock_offset_ns=self._clock_offset_ns,
            pid=os.getpid(),
            host=socket.gethostname(),
        )

    def _send(self, message: Message, body: bytes) -> None:
        self.runner.send_message(message.value, with_payload(body))


class AttemptNotAnswered(Exception):
    """How Locust's listeners see an attempt that brought no answer."""


def _exception(record: RequestRecord) -> Exception:
    said = (record.outcome.value, str(record.status or ""), record.reason or "")
    return AttemptNotAnswered(" ".join(part for part in said if part))


def _say_whether_reachable(host: str, port: int) -> None:
    """Tell whoever started us by hand, at once: Locust tries for minutes, silently at first."""
    where = f"{host}:{port}"
    try:
        socket.create_connection((host, port), timeout=REACHABLE_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        say = f"cannot connect to {where} yet ({why.lower()}): does `agentload run` wait there? Trying on"
    else:
        say = f"{where} answers; waiting for the run to begin"
    print(f"agentload worker: {say}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Work for the master at HOST PORT until it lets us go."""
    parser = argparse.ArgumentParser(prog="python -m agentload.drivers.locust_worker", description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input closes")
    options = parser.parse_args(arguments)
    log_to_stderr()
    if options.parent_pipe:
        die_with_parent()
        exit_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master decides
    locust.runners.MASTER_HEARTBEAT_TIMEOUT = MASTER_SILENCE_S
    if not options.parent_pipe:
        _say_whether_reachable(options.host, options.port)
    try:
        worker = Worker()
        worker.connect(options.host, options.port)
        worker.work()
    except (ConnectionError, KeyboardInterrupt) as error:
        sys.exit(f"agentload worker: master at {options.host}:{options.port}: {error or 'interrupted'}")


if __name__ == "__main__":
    main()
