"""What every request of users' own code must pass on its way out, whichever of Locust's clients sends it.

Only hosts that may be loaded, no more in a second and no more connections than the caps allow, together with
the planned load, and nothing after the run's end. Imports gevent: only the Locust processes may import this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any, Protocol

import gevent
import gevent.local
from gevent.lock import Semaphore

from agentload.caps import Allowance
from agentload.client.locust_reading import Reading
from agentload.drivers.clock import RunClock
from agentload.drivers.room import Room
from agentload.drivers.withheld import Why, WithheldBook
from agentload.locust import Refused
from agentload.model import NS
from agentload.targets import is_loopback

POLL_S = 0.01
"""How often a connection that waits for its place looks again."""


class Sender(Protocol):
    """The request that is being sent, as far as the gate is concerned."""

    reading: Reading | None
    """Of the latest answer; one is there before the end only where it was a redirect."""

    @property
    def tenant(self) -> str:
        """Whose it is."""
        ...

    def hold(self, waited_ns: int) -> None:
        """It has not been sent meanwhile."""
        ...

    def listen(self, status: int, headers: Collection[tuple[str, str]], most_bytes: int) -> Reading:
        """Its answer begins."""
        ...


class Gate:
    """One for all such users of a worker."""

    def __init__(self, hosts: Collection[str], room: Room, most_bytes: int) -> None:
        """`hosts`: what may be loaded beside this machine; `most_bytes` of an answer."""
        self.book = WithheldBook()
        self.most_bytes = most_bytes
        self.allowance: Allowance | None = None
        """Shared with the planned load."""
        self.beside: Callable[[], int] = lambda: 0
        """Connections of the planned load that are at work."""
        self.until_ns: int | None = None
        """On the run's clock: from then on nothing is sent."""
        self.busy = 0
        """Connections of such users that are at work."""
        self.clock = RunClock(0)
        self.whose: Callable[[], str] = lambda: "?"
        """The tenant whose user is running, where no request is known."""
        self._hosts = {_plain(host) for host in hosts}
        self._room = room
        self._line = Semaphore()
        self._mine: Any = gevent.local.local()

    # -- what is being sent

    @property
    def sender(self) -> Sender | None:
        """What this greenlet is sending."""
        found: Sender | None = getattr(self._mine, "sender", None)
        return found

    @contextmanager
    def sending(self, sender: Sender) -> Generator[None]:
        """Its turn has come already: see `turn`."""
        outer = self.sender
        self._mine.sender, self._mine.paid = sender, True
        try:
            yield
        finally:
            self._mine.sender, self._mine.paid = outer, False

    # -- what may be sent

    def check(self, host: str | None, tenant: str | None = None) -> None:
        """Raises Refused for a host that is not to be loaded. `tenant`: whose request it is, where known."""
        if host is not None and (is_loopback(_plain(host)) or _plain(host) in self._hosts):
            return
        sender, named = self.sender, "a URL without a host" if host is None else _plain(host)
        tenant = tenant or self._tenant()
        if sender is not None and sender.reading is not None:
            self.book.add(tenant, Why.REDIRECT, named)
            raise Refused(f"the target redirects to {named}, which is neither the target nor allowed")
        self.book.add(tenant, Why.HOST, named)
        raise Refused(
            f"{named} is neither the target nor allowed: "
            f"load it only if it is yours, with --allow-host {named}"
        )

    def turn(self, tenant: str | None = None) -> None:
        """Wait until one more may be sent. Raises Refused after the run's end."""
        if getattr(self._mine, "paid", False):
            self._mine.paid = False
            self._refuse_when_over()
            return
        began_ns, waited = self.clock.now_ns(), False
        with self._line:
            while True:
                self._refuse_when_over()
                wait_ns = 0 if self.allowance is None else self.allowance.wait_ns(self.clock.now_ns())
                if not wait_ns:
                    break
                waited = True
                gevent.sleep(wait_ns / NS)
            if self.allowance is not None:
                self._mine.taken_ns = self.clock.now_ns()
                self.allowance.take(self._mine.taken_ns)
        if waited:
            self._held(Why.RATE, began_ns, tenant)

    def sent(self) -> None:
        """It leaves now, and not when its turn came: a connection may have had to be opened first."""
        if self.allowance is not None and (taken_ns := getattr(self._mine, "taken_ns", None)) is not None:
            sent_ns = self.clock.now_ns()
            if self.allowance.move(taken_ns, sent_ns):
                self._mine.taken_ns = sent_ns

    def await_place(self) -> None:
        """Wait until one more connection may be at work, and count it. Raises Refused after the run's end."""
        if self.has_place():
            self.busy += 1
            return
        began_ns = self.clock.now_ns()
        while not self.has_place():
            self._refuse_when_over()
            gevent.sleep(POLL_S)
        self.busy += 1
        self._held(Why.CONNECTIONS, began_ns)

    def too_long(self, reading: Reading) -> Refused:
        """An answer is longer than allowed: what its reader is told."""
        self.book.add(reading.whose, Why.BYTES)
        return Refused(f"the answer is longer than {self.most_bytes:,} bytes (--max-answer-bytes)")

    def has_place(self) -> bool:
        """Whether one more connection may be at work."""
        return self._room.places is None or self.beside() + self.busy < self._room.places

    def is_over(self) -> bool:
        """The run has ended."""
        return self.until_ns is not None and self.clock.now_ns() >= self.until_ns

    def _refuse_when_over(self) -> None:
        if self.is_over():
            raise Refused("the run has ended: nothing more is sent")

    def _held(self, why: Why, began_ns: int, tenant: str | None = None) -> None:
        waited_ns = self.clock.now_ns() - began_ns
        self.book.add(tenant or self._tenant(), why, waited_ns=waited_ns)
        if (sender := self.sender) is not None:
            sender.hold(waited_ns)

    def _tenant(self) -> str:
        return self.whose() if self.sender is None else self.sender.tenant

    # -- connections

    def place(self) -> Place:
        """For a connection that is about to be opened."""
        return Place(self, self._room)


class Place:
    """One connection's among those that may be open."""

    def __init__(self, gate: Gate, room: Room) -> None:
        self._gate, self._room = gate, room
        self._working = self._open = False

    def enter(self) -> None:
        """It is about to be opened, for a request."""
        self._gate.await_place()
        self._room.enter()
        self._open = self._working = True

    def rest(self, closing: Callable[[], Callable[[], None] | None]) -> None:
        """Its answer has been read. `closing` is asked for what closes it when somebody else needs the place.

        It must not keep the connection alive: users go, and theirs go with them.
        """
        if self._open and self._working:
            self._working = False
            self._gate.busy -= 1
            self._room.rest(self, lambda: self._close(closing))

    def wake(self) -> bool:
        """It is used again, if it may be: else it must be closed, for nothing may be open and just wait."""
        if self._open and not self._working:
            if not self._gate.has_place():
                return False
            self._room.work(self)
            self._gate.busy += 1
            self._working = True
        return True

    def _close(self, closing: Callable[[], Callable[[], None] | None]) -> None:
        if (close := closing()) is not None:
            close()
        self.leave()

    def leave(self) -> None:
        """It is closed. Any number of times."""
        if not self._open:
            return
        self._open = False
        self._room.work(self)
        self._room.leave()
        if self._working:
            self._gate.busy -= 1


def _plain(host: str) -> str:
    return host.lower().strip("[]").removesuffix(".")
