"""What the endpoints share: the provider, its clock, the calls in flight and the health of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Protocol

from fake_provider.call import Call
from fake_provider.core import Provider
from fake_provider.heartbeat import Heartbeat, Lateness
from fake_provider.hold import Hold
from fake_provider.ledger_file import LedgerFile
from fake_provider.tools import ToolDesk


class Waiter(Protocol):
    """Who waits for the answer of a call."""

    def wake(self) -> None:
        """Something has changed: look again."""
        ...


class Host:
    """Lives in one event loop; the clock is the monotonic one."""

    def __init__(self, provider: Provider, ledger_file: LedgerFile | None = None) -> None:
        self.provider = provider
        self.ledger_file = ledger_file
        self.tools = ToolDesk(provider.ledger.run)
        self.clock_ns = time.monotonic_ns
        self.heartbeat = Heartbeat(self.clock_ns)
        self.lateness = Lateness()
        self.hold = Hold()
        self.stopping = False
        self.peers: dict[int, Waiter] = {}
        """Who waits for the answer of each call in flight, by the call's number."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts the heartbeat, the flushing of the ledger and the timer of the faults."""
        self._tasks.append(asyncio.create_task(self.heartbeat.run()))
        if self.ledger_file is not None:
            self._tasks.append(asyncio.create_task(self.ledger_file.run()))
        self.rearm()

    def stop(self) -> None:
        """Ends all calls in flight; each is recorded as cut."""
        self.stopping = True
        for peer in self.peers.values():
            peer.wake()

    def close(self) -> None:
        """Stops what `start` started and flushes the ledger for the last time."""
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self.ledger_file is not None:
            self.ledger_file.close()

    def wake(self, calls: Iterable[Call]) -> None:
        """Tells the exchanges of calls that have just entered service."""
        for call in calls:
            peer = self.peers.get(call.number)
            if peer is not None:
                peer.wake()

    def restart(self) -> None:
        """A new run began: health is counted anew, and everybody looks at the new configuration."""
        self.heartbeat.stalls = []
        self.lateness = Lateness()
        self.changed()

    def changed(self) -> None:
        """Faults or the configuration changed: every exchange looks again, and so does the timer."""
        for peer in self.peers.values():
            peer.wake()
        self.rearm()

    def rearm(self) -> None:
        """Sets the timer to the instant at which the provider wants to be told the time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakeup_ns = self.provider.wakeup_ns()
        if wakeup_ns is not None:
            delay_s = max(0, wakeup_ns - self.clock_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def health(self) -> dict[str, Any]:
        """Stalls and lateness of this process, and what became of the ledger file."""
        file = self.ledger_file
        return {
            "stalls": self.heartbeat.stalls,
            "lateness_ms": self.lateness.summary(),
            "ledger_file": None
            if file is None
            else {
                "path": str(file.path),
                "written": file.lines_written,
                "lost": file.lines_lost,
                "error": file.error,
            },
        }

    def _tick(self) -> None:
        self.wake(self.provider.tick(self.clock_ns()))
        self.rearm()
