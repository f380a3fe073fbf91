"""A run of ours inside a process of Locust's own: the master's part, over the runner that Locust has made.

Imports locust: only files that Locust itself runs may import this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import gevent
from gevent.event import Event
from gevent.queue import Queue
from locust.runners import MasterRunner

from agentload.drivers.live import TICK_S, LiveDriver
from agentload.drivers.locust_master import CONNECT_S, Master
from agentload.drivers.peers import Peer
from agentload.drivers.protocol import Done, Failed, MasterEvent, Message, Started
from agentload.errors import AgentloadError, InconclusiveError

STOPPED_THROUGH_LOCUST = "stopped through Locust"


def players(runner: Any) -> list[str]:
    """Locust's names of the processes that will play; its one process is called `local`."""
    if not isinstance(runner, MasterRunner):
        return ["local"]
    clients = runner.clients
    return [client.id for client in (*clients.ready, *clients.spawning, *clients.running)]


class Router:
    """Hands workers' messages to the run that there is now: a runner takes one handler for each, for good."""

    def __init__(self, runner: Any) -> None:
        self.ready_players: set[str] = set()
        """Locust's names of the workers that have said hello."""
        self.handlers: dict[Message, Callable[[Any, Any], None]] = {}
        local = not isinstance(runner, MasterRunner)
        for message in (Message.HELLO, Message.CLOCK, Message.READY, Message.REPORT):
            if not (local and message is Message.CLOCK):  # the one process has its own ear for that
                runner.register_message(message.value, self._on_message)

    def _on_message(self, environment: Any, msg: Any) -> None:
        if msg.type == Message.HELLO:
            self.ready_players.add(msg.node_id)
        elif (handler := self.handlers.get(Message(msg.type))) is not None:
            handler(environment, msg)


class Conductor(Master):
    """Locust has started the workers and spawns the users: all else is as in a run of ours."""

    lead_s = 1.0
    """Locust's own word to begin comes after ours."""
    ready_players: set[str]
    """Names of the workers that hear what they are told."""

    def handlers(self) -> dict[Message, Callable[[Any, Any], None]]:
        """Hellos are for every run, and are heard before there is one."""
        return {
            message: handler for message, handler in super().handlers().items() if message != Message.HELLO
        }

    def _gather(self) -> None:
        for index, name in enumerate(players(self.runner)):
            peer = Peer(index)
            peer.client_id = name
            self.peers.append(peer)
        if not self.peers:
            raise InconclusiveError("no Locust worker is connected: start some with --worker")
        if isinstance(self.runner, MasterRunner):
            self._await(lambda peer: peer.client_id in self.ready_players, CONNECT_S, "answered")

    def _spawn_players(self) -> None:
        """Locust does."""


class DriverWithin(LiveDriver):
    """The same face as that of a driver in processes of its own. A subclass says over which runner."""

    runner: Any
    router: Router
    begun: Event
    """Set when the load is about to begin."""
    _conductor: Conductor
    _task: Any = None

    def start(self) -> None:
        """Find the players; hand out the plan in a greenlet of its own."""
        self._told: Queue[MasterEvent] = Queue()
        self._conductor = Conductor(self.config, self.runner, self._tell)
        self._conductor.ready_players = self.router.ready_players
        self.router.handlers.update(self._conductor.handlers())
        self._task = gevent.spawn(self._conduct)

    def events(self) -> Iterator[MasterEvent | None]:
        """What the conductor says, until the run is over."""
        while True:
            try:
                event = self._told.get(timeout=TICK_S)
            except Empty:
                yield None
                continue
            if isinstance(event, Done):
                self.done = event
            yield event
            if isinstance(event, Done | Failed):
                return

    def stop(self) -> None:
        """As with a driver of our own."""
        self._conductor.stop(STOPPED_THROUGH_LOCUST)

    def close(self) -> None:
        """Locust ends its processes itself."""
        if self._task is not None:
            self._task.kill()

    def _conduct(self) -> None:
        try:
            self._tell(self._conductor.run())
        except AgentloadError as error:
            self._tell(Failed(error="\n".join(error.lines)))

    def _tell(self, event: MasterEvent) -> None:
        if isinstance(event, Started):
            self.started = event
            self.begun.set()
        self._told.put(event)
