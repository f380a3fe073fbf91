"""Asks for the gateway's health page during the load, as an orchestrator would. SHELL."""

from __future__ import annotations

import threading
from collections.abc import Callable

from agentload.drivers.plain_call import Line
from agentload.drivers.probe import MIB, Bounds
from agentload.errors import UnreachableError
from agentload.evidence.health_samples import EVERY_NS, PATIENCE_NS, next_due_ns, sample
from agentload.model import NS, Sample
from agentload.targets import Target

Clock = Callable[[], int]
BOUNDS = Bounds(PATIENCE_NS / NS, MIB)


class HealthWatch(threading.Thread):
    """A thread that asks once a second, one at a time, each time over a new connection.

    One that was kept would not show that newcomers are refused.
    """

    def __init__(
        self,
        target: Target,
        t0_ns: int,
        clock: Clock,
        keep: Callable[[Sample], None],
    ) -> None:
        """Of a target that has a health page. `t0_ns`: the run's zero on `clock`."""
        assert target.health is not None
        super().__init__(name="health-watch", daemon=True)
        self.target, self.path = target, target.health
        self.t0_ns, self.clock, self.keep = t0_ns, clock, keep
        self._stopping = threading.Event()

    def run(self) -> None:
        """Ask until stopped. No answer is a sample, too, and never an error of the run."""
        due_ns = self.clock() + EVERY_NS
        while not self._stopping.wait(max(0, due_ns - self.clock()) / NS):
            sent_ns = self.clock()
            status = self.ask()
            if self._stopping.is_set():  # the gateway may have been taken down meanwhile
                return
            ended_ns = self.clock()
            self.keep(sample(sent_ns - self.t0_ns, ended_ns - self.t0_ns, status))
            due_ns = next_due_ns(due_ns, ended_ns)

    def stop(self) -> None:
        """Ask for the end and wait for it."""
        self._stopping.set()
        self.join(timeout=2 * BOUNDS.seconds)

    def ask(self) -> int:
        """Once: the answer's status, or 0."""
        try:
            with Line(self.target.base_url, "the health page", self.target.trust) as line:
                return line.call("GET", self.path, bounds=BOUNDS).status
        except UnreachableError:
            return 0
