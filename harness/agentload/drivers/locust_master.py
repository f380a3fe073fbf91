"""The load driver: a Locust master that starts the workers, hands out the plan and keeps the books.

    python -m agentload.drivers.locust_master --config FILE.json

Prints JSON lines (`protocol.MasterEvent`); reads `stop` on standard input. When that closes, its parent has
died: everything ends at once.
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gevent
import locust.runners
import msgspec

from agentload.drivers.collector import Collector, Files
from agentload.drivers.locust_common import log_to_stderr, payload, with_payload
from agentload.drivers.locust_listening import listening
from agentload.drivers.parent import read_lines
from agentload.drivers.peers import Peer
from agentload.drivers.processes import die_with_parent
from agentload.drivers.protocol import (
    Assignment,
    ClockReading,
    Done,
    Failed,
    MasterConfig,
    MasterEvent,
    MasterReady,
    Message,
    Ready,
    Report,
    Start,
    Started,
    Stop,
    WorkerLost,
    event_line,
)
from agentload.errors import AgentloadError, InconclusiveError
from agentload.model import Profile
from agentload.rundir import write_file

LEAD_S = 0.5
"""From the word to start until time zero: long enough for it, and Locust's own, to reach every worker."""
CONNECT_S = 30.0
REMOTE_CONNECT_S = 600.0
"""How long workers from elsewhere are waited for: somebody has to start them."""
PLAN_S = 120.0
POLL_S = 0.1
PROGRESS_S = 0.5
INTERVAL_S = 1.0
GRACE_S = 15.0
"""Beyond the drain, for the last reports."""
FAREWELL_S = 0.5
"""For the last word to reach workers elsewhere, whose end we cannot see."""
EARLY_DRAIN_S = 2.0
"""How long open requests are waited for when the run is stopped early."""

log = logging.getLogger(__name__)


class Master:
    """One run, from the first worker to the last file."""

    lead_s = LEAD_S

    def __init__(
        self, config: MasterConfig, runner: Any = None, tell: Callable[[MasterEvent], None] | None = None
    ) -> None:
        """Listens, unless it is given a runner; `tell` takes the events. Raises InconclusiveError."""
        self.config = config
        self.tell = tell or emit
        self.folder = Path(config.run_dir)
        self.profile = Profile.model_validate(config.profile)
        self.peers: list[Peer] = []
        self.t0_ns = 0
        self.collector: Collector | None = None
        self.stopped_because: str | None = None
        self._problem: AgentloadError | None = None
        """What a report's handler could not do (Locust swallows exceptions of handlers)."""
        self._deadline_ns = 0
        self.runner: Any = listening(config) if runner is None else runner
        if runner is None:
            if config.web_port:
                self.runner.environment.events.test_stopping.add_listener(self._on_test_stopping)
            for message, handler in self.handlers().items():
                self.runner.register_message(message.value, handler)

    def handlers(self) -> dict[Message, Callable[[Any, Any], None]]:
        """What is to be done about each message of a worker's."""
        return {
            Message.HELLO: self._on_hello,
            Message.CLOCK: self._on_clock,
            Message.READY: self._on_ready,
            Message.REPORT: self._on_report,
        }

    @property
    def port(self) -> int:
        """Where workers connect."""
        return int(self.runner.server.port)

    def run(self) -> Done:
        """Raises AgentloadError when the run cannot begin, or its files cannot be written."""
        self._gather()
        self._hand_out()
        files = Files(self.folder, time.time() + self.lead_s)
        try:
            self._begin(files)
            self._watch()
            return self._finish()
        finally:
            files.close()

    def stop(self, because: str) -> None:
        """Have the workers send nothing more and report what they have."""
        if self.stopped_because is not None:
            return
        self.stopped_because = because
        drain_s = min(EARLY_DRAIN_S, self._drain_s())
        self._deadline_ns = self._now_ns() + round((drain_s + GRACE_S) * 1e9)
        for peer in self._alive():
            self._send(Message.STOP, Stop(drain_s=drain_s), peer)

    def let_go(self) -> None:
        """Send the workers home, and see to it that they go."""
        self.runner.send_message("quit")  # what runner.quit() says too, but it then waits for half a second
        if self.config.expect_workers:
            gevent.sleep(FAREWELL_S)
        for peer in self.peers:
            peer.end()

    def kill(self) -> None:
        """End the workers at once."""
        for peer in self.peers:
            peer.kill()

    # -- before time zero

    def _gather(self) -> None:
        """Start the local workers, or wait for those from elsewhere, until all have said hello."""
        expected = self.config.expect_workers
        if expected:
            self.peers = [Peer(index) for index in range(expected)]
        else:
            bind = self.config.bind
            host = "127.0.0.1" if bind in ("*", "0.0.0.0") else bind
            count = self.config.workers
            self.peers = [Peer.start(index, host, self.port, self.folder) for index in range(count)]
        self._await(
            lambda peer: peer.client_id is not None, REMOTE_CONNECT_S if expected else CONNECT_S, "connected"
        )

    def _hand_out(self) -> None:
        for peer in self.peers:
            assignment = Assignment(config=self.config, index=peer.index, of=len(self.peers))
            self._send(Message.ASSIGN, assignment, peer)
        self._await(lambda peer: peer.ready is not None, PLAN_S, "drawn the plan")
        for peer in self.peers:
            self._check_before_start(peer)
        readies = [cast(Ready, peer.ready) for peer in self.peers]
        if len({ready.fingerprint for ready in readies}) > 1:
            raise InconclusiveError(
                "the workers draw different plans: give every host the same version and plug-ins"
            )

    def _begin(self, files: Files) -> None:
        if self.stopped_because is not None:  # nobody has been told: there was nobody to tell
            raise InconclusiveError(f"stopped before the load began: {self.stopped_because}")
        readies = [cast(Ready, peer.ready) for peer in self.peers]
        self.collector = Collector(
            files,
            tenants=[tenant.name for tenant in self.profile.tenants],
            scheduled={ready.index: ready.scheduled for ready in readies},
            in_flight_cap=sum(ready.in_flight_cap for ready in readies),
        )
        self.t0_ns = time.monotonic_ns() + round(self.lead_s * 1e9)
        end_ns = self.profile.duration_ns + round(self._drain_s() * 1e9)
        self._deadline_ns = end_ns + round(GRACE_S * 1e9)
        for peer in self.peers:
            self._send(Message.START, Start(t0_ns=self.t0_ns), peer)
        self._spawn_players()
        self.tell(
            Started(
                t0_ns=self.t0_ns,
                t0_unix_s=time.time() + self.lead_s,
                scheduled=sum(ready.scheduled for ready in readies),
            )
        )

    def _spawn_players(self) -> None:
        """One user in each worker, which plays its share."""
        gevent.spawn(self.runner.start, len(self.peers), spawn_rate=float(len(self.peers)))

    def _await(self, condition: Callable[[Peer], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not all(condition(peer) for peer in self.peers):
            if self.stopped_because is not None:
                raise InconclusiveError(f"stopped before the load began: {self.stopped_because}")
            for peer in self.peers:
                self._check_before_start(peer)
            if time.monotonic() > deadline_s:
                missing = sum(1 for peer in self.peers if not condition(peer))
                raise InconclusiveError(
                    f"{missing} of {len(self.peers)} workers have not {what} within {timeout_s:.0f} s"
                )
            gevent.sleep(0.02)

    def _check_before_start(self, peer: Peer) -> None:
        if peer.ready is not None and peer.ready.error is not None:
            raise InconclusiveError(f"worker {peer.index}: {peer.ready.error}")
        if peer.ended():
            raise InconclusiveError(f"worker {peer.index} ended before the load began: see {peer.log}")

    # -- the run

    def _watch(self) -> None:
        """Until every worker has said its last word, is gone, or has had all the time it could need."""
        assert self.collector is not None
        next_progress_s = next_interval_s = time.monotonic()
        for peer in self.peers:
            peer.heard_s = time.monotonic() + self.lead_s
        while not self.collector.settled():
            gevent.sleep(POLL_S)
            self._check_health(self.collector)
            now_s = time.monotonic()
            if now_s >= next_progress_s:
                next_progress_s += PROGRESS_S
                self.tell(self.collector.progress(self._now_ns()))
            if now_s >= next_interval_s:
                next_interval_s += INTERVAL_S
                self.collector.end_interval(self._now_ns())

    def _check_health(self, collector: Collector) -> None:
        if self._problem is not None:
            raise self._problem
        if (ended := collector.ended_by_users()) is not None:
            self.stop(ended)
        late = self._now_ns() > self._deadline_ns
        for peer in self._alive():
            because = peer.death() or ("it has not finished in time" if late else None)
            if because is not None:
                collector.lose(peer.index, because)
                self.tell(WorkerLost(index=peer.index, because=because))
                self.stop(f"worker {peer.index} was lost: {because}")

    def _finish(self) -> Done:
        assert self.collector is not None
        self.collector.end_interval(self._now_ns())
        self.tell(self.collector.progress(self._now_ns()))
        health = self.collector.health()
        self._write("generator.json", health)
        self._write("workers.json", {index: book.state for index, book in self.collector.workers.items()})
        return Done(
            interrupted=self.stopped_because,
            records=self.collector.records,
            trustworthy=health.trustworthy,
            user_errors=self.collector.user_errors(),
            ended_by_users=self.collector.ended_by_users(),
        )

    def _write(self, name: str, value: object) -> None:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
        write_file(self.folder / name, text)

    # -- messages

    def _on_test_stopping(self, **_: Any) -> None:
        """Somebody stops it in Locust's web UI: the workers get to report before Locust ends their users."""
        if self.collector is not None and not self.collector.settled():
            self.stop("stopped in Locust's web UI")
            while self._now_ns() < self._deadline_ns and not self.collector.settled():
                gevent.sleep(POLL_S)

    def _on_hello(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        pid = msgspec.msgpack.decode(payload(msg)).get("pid")
        for peer in self.peers:
            if peer.is_it(pid):
                peer.client_id = msg.node_id
                return
        self.runner.send_message("quit", client_id=msg.node_id)  # one too many

    def _on_clock(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        reading = msgspec.msgpack.decode(payload(msg), type=ClockReading)
        reading.master_ns = time.monotonic_ns()
        self.runner.send_message(
            Message.CLOCK.value, with_payload(msgspec.msgpack.encode(reading)), msg.node_id
        )

    def _on_ready(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        ready = msgspec.msgpack.decode(payload(msg), type=Ready)
        self.peers[ready.index].ready = ready

    def _on_report(self, environment: Any, msg: Any) -> None:  # noqa: ARG002
        report = msgspec.msgpack.decode(payload(msg), type=Report)
        self.peers[report.index].heard_s = time.monotonic()
        try:
            if self.collector is not None:
                self.collector.report(report, self._now_ns())
        except AgentloadError as error:
            self._problem = error

    # -- small things

    def _send(self, message: Message, body: msgspec.Struct, peer: Peer) -> None:
        self.runner.send_message(message.value, with_payload(msgspec.msgpack.encode(body)), peer.client_id)

    def _alive(self) -> list[Peer]:
        """Peers that have neither finished nor been lost."""
        if self.collector is None:
            return []
        books = self.collector.workers
        return [peer for peer in self.peers if not books[peer.index].final and books[peer.index].lost is None]

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self.t0_ns

    def _drain_s(self) -> float:
        return self.profile.drain_s if self.config.drain_s is None else self.config.drain_s


def emit(event: MasterEvent) -> None:
    """Tell the CLI. If nobody listens any more, end."""
    try:
        print(event_line(event), flush=True)
    except OSError:
        os._exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Drive one run."""
    parser = argparse.ArgumentParser(prog="python -m agentload.drivers.locust_master", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--parent-pipe", action="store_true", help="take commands from standard input")
    options = parser.parse_args(arguments)
    log_to_stderr()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    locust.runners.HEARTBEAT_LIVENESS = 60  # a busy machine is no dead worker: `Peer.death` says who is dead
    config = msgspec.json.decode(options.config.read_bytes(), type=MasterConfig)
    try:
        return _drive(Master(config), options.parent_pipe)
    except AgentloadError as error:
        emit(Failed(error="\n".join(error.lines)))
        return int(error.exit_code)


def _drive(master: Master, listen: bool) -> int:
    emit(MasterReady(port=master.port, pid=os.getpid()))

    def leave() -> None:
        master.kill()
        os._exit(1)

    def on_line(line: str) -> None:
        if line == "stop":
            master.stop("stopped by the user")

    gevent.signal_handler(signal.SIGTERM, leave)
    if listen:
        gevent.spawn(read_lines, on_line, leave)
    try:
        done = master.run()
    except BaseException:
        master.kill()
        raise
    master.let_go()
    emit(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
