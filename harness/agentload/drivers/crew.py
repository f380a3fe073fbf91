"""Greenlets that outlive their jobs.

A new greenlet needs a stack of its own, which is mapped into memory, faulted in page by page and unmapped
again: more than a tenth of what a whole request costs. So whoever has done a job waits for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import gevent

Job = TypeVar("Job")
Member = Any
"""A raw greenlet (gevent's stubs cannot say which)."""
POLL_S = 0.001


class Crew(Generic[Job]):
    """Does every job at once, each in a greenlet of its own."""

    def __init__(self, work: Callable[[Job], object]) -> None:
        """`work` does one job. It ends when it is thrown GreenletExit."""
        self.busy: dict[Member, Job] = {}
        """Who has which job, begun or not."""
        self._work = work
        self._idle: list[Member] = []
        self._dismissed = False
        self._hub: Any = gevent.get_hub()

    def hand(self, job: Job) -> None:
        """Have a job done: it begins as soon as the current greenlet lets others run."""
        if self._idle:
            member = self._idle.pop()
            self._hub.loop.run_callback(member.switch, job)
        else:
            member = gevent.spawn_raw(self._live, job)
        self.busy[member] = job

    def dismiss(self) -> list[Job]:
        """End all work and wait until everybody has left; returns the jobs that nobody has begun."""
        self._dismissed = True
        members = [*self.busy, *self._idle]
        gevent.killall(members, block=False)
        while not all(member.dead for member in members):
            gevent.sleep(POLL_S)
        return list(self.busy.values())

    def _live(self, job: Job) -> None:
        me: Member = gevent.getcurrent()
        while not self._dismissed:
            try:
                self._work(job)
            finally:
                del self.busy[me]
            if self._dismissed:
                return
            self._idle.append(me)
            job = self._hub.switch()
