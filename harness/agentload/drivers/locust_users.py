"""Users of somebody's own Locust file, in a worker: begun and stopped with their tenant's phases.

They are real Locust users under the worker's real runner, which spawns them. Each `request` event of theirs
becomes a record of their tenant. Imports locust: only the Locust processes may import this.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import gevent
from gevent.event import Event

from agentload.drivers.bookkeeper import Bookkeeper
from agentload.drivers.clock import RunClock
from agentload.drivers.locust_common import CONTEXT, PLANNED
from agentload.drivers.locust_listeners import Listeners
from agentload.drivers.locust_user_class import playing
from agentload.drivers.locust_users_file import load_class, raised_in, where
from agentload.drivers.locust_watch import Sending, Watch, WatchBook
from agentload.drivers.locust_way_out import WayOut
from agentload.drivers.part import OwnShare, Part
from agentload.model import NS

LEAVE_S = 2.0
"""How long a user may go on with its task when its tenant's phase has ended, if it is not the last one."""
KILL_S = 1.0
"""How long what a user does on its way out (`on_stop`) is waited for."""
PAUSE_AFTER_ERROR_S = 0.1
"""A task that raises is begun again, with a wait time of nothing at once: that would stop everybody else."""
MOST_ERRORS = 20
"""Different errors that are told of."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Slot:
    """One user of a tenant, in one worker."""

    share: OwnShare
    number: int
    class_name: str


class OwnUsers:
    """All of a worker's. `run` blocks until the last has gone; `stop` may be called from another greenlet."""

    def __init__(self, environment: Any, part: Part) -> None:
        """Imports their files. Raises ProfileError, a line for each that cannot be played."""
        self.errors: dict[str, int] = {}
        """What their code raised, a line each, and how often."""
        self.book = WatchBook(part)
        self._environment = environment
        self._clock = RunClock(0)
        self._stopped = Event()
        self._horizon_ns = part.share.horizon_ns
        self._end_ns = part.profile.duration_ns
        self._slots: list[_Slot] = []
        self._classes: list[Any] = []
        self._listeners = Listeners(environment, part.target.base_url) if part.own else None
        for share in part.own:
            exited = partial(self._exited, share)
            played = playing(load_class(share.own), part.target, Watch(share, self.book), exited)
            environment.user_classes.append(played)
            self._classes.append(played)
            self._slots += [_Slot(share, number, played.__name__) for number in share.numbers]
        self._way_out: WayOut | None = None
        if part.own:
            mine, over = self._share_of_this_greenlet, self._is_over
            self._way_out = WayOut(part.own, mine, environment.runner, over)
            environment.events.request.add_listener(self._on_request)
            environment.events.user_error.add_listener(self._on_error)
        if self._listeners is not None:
            self._listeners.begin(self._note_listener)

    def prepare(self, clock: RunClock, books: Bookkeeper) -> None:
        """Take the run's clock, and who keeps the records."""
        self._clock = clock
        self.book.prepare(clock, books)
        self.book.gate.until_ns = self._horizon_ns

    def leave(self) -> None:
        """Another run begins in this process: nothing of this one is to be heard any more."""
        for played in self._classes:
            self._environment.user_classes.remove(played)
        if self._way_out is not None:
            self._way_out.remove()
        if self._classes:
            self._environment.events.request.remove_listener(self._on_request)
            self._environment.events.user_error.remove_listener(self._on_error)
        if self._listeners is not None:
            self._listeners.leave()

    @property
    def ended_by(self) -> str | None:
        """Whose code wants the run to end, in words."""
        return None if self._way_out is None else self._way_out.because

    def exited(self, error: SystemExit) -> bool:
        """A `sys.exit()` that came as far as this process's main greenlet; False: it is not of their code."""
        return self._way_out is not None and self._way_out.exited(error)

    def run(self) -> None:
        """Every user in its tenant's phases; whatever is open at the horizon is unfinished."""
        gevent.joinall([gevent.spawn(self._play, slot) for slot in self._slots])
        if self._slots:
            self.book.close()
        if self._listeners is not None:
            self._listeners.end(self._note_listener)

    def stop(self, drain_s: float) -> None:
        """Begin no task more, and wait for those that run no longer than `drain_s`."""
        self._horizon_ns = min(self._horizon_ns, self._clock.now_ns() + round(drain_s * NS))
        self.book.gate.until_ns = self._horizon_ns
        self._stopped.set()

    # -- one user

    def _play(self, slot: _Slot) -> None:
        for start_ns, end_ns in slot.share.windows:
            begins_ns = start_ns + slot.share.begins_ns(slot.number)
            if begins_ns >= end_ns or not self._wait_until(begins_ns):
                continue
            user = self._spawn(slot)
            if user is None:
                return
            self._wait_until(end_ns)
            self._send_home(user, end_ns)

    def _spawn(self, slot: _Slot) -> Any:
        """None: the class cannot be made; its error is told of."""
        try:
            [user] = self._environment.runner.spawn_users({slot.class_name: 1})
        except SystemExit as error:
            self._exited(slot.share, error)
            return None
        except Exception as error:
            self._note(slot.share, error, error.__traceback__)
            log.exception("a user of tenant %s cannot begin", slot.share.tenant.name)
            return None
        return user

    def _send_home(self, user: Any, end_ns: int) -> None:
        """Let it finish its task, for a while; then end it."""
        gevent.spawn(user.stop)
        is_last = end_ns >= self._end_ns or self._stopped.is_set()
        until_ns = self._horizon_ns if is_last else min(self._horizon_ns, end_ns + round(LEAVE_S * NS))
        while not user.greenlet.dead and (left_ns := until_ns - self._clock.now_ns()) > 0:
            user.greenlet.join(timeout=min(left_ns / NS, 0.1))
            until_ns = min(until_ns, self._horizon_ns)
        if not user.greenlet.dead:
            self.book.over = self.book.over or until_ns >= self._horizon_ns
            user.greenlet.kill(block=True, timeout=KILL_S)

    def _wait_until(self, at_ns: int) -> bool:
        """False when the run was stopped meanwhile."""
        while not self._stopped.is_set() and (left_ns := at_ns - self._clock.now_ns()) > 0:
            self._stopped.wait(left_ns / NS)
        return not self._stopped.is_set()

    def _exited(self, share: OwnShare, error: SystemExit) -> None:
        assert self._way_out is not None
        self._way_out.exited(error, share)

    def _is_over(self) -> bool:
        return self._stopped.is_set() or self._clock.now_ns() >= self._end_ns

    def _share_of_this_greenlet(self) -> OwnShare | None:
        watch = self.book.of_this_greenlet()
        return None if watch is None else watch.share

    # -- what Locust tells

    def _on_request(self, **event: Any) -> None:
        context = event.get("context")
        known = context.get(CONTEXT) if isinstance(context, dict) else None
        if known == PLANNED:
            return
        if isinstance(known, Sending):
            known.fired(event)
        elif (watch := self.book.of_this_greenlet()) is not None:
            watch.fired_by_hand().fired(event, by_hand=True)

    def _on_error(
        self, user_instance: object, exception: Exception, tb: TracebackType | None, **_: Any
    ) -> None:
        user = getattr(user_instance, "user", user_instance)  # of a task's error Locust names the TaskSet
        watch = getattr(user, "agentload", None)
        if isinstance(watch, Watch):
            self._note(watch.share, exception, tb)
            gevent.sleep(PAUSE_AFTER_ERROR_S)

    def _note_listener(self, error: BaseException) -> None:
        """Whose it is, is not known of a listener: files are told apart by where it was raised."""
        for share in self.book.part.own:
            if raised_in(Path(share.own.file), error.__traceback__):
                self._note(share, error, error.__traceback__)
                return

    def _note(self, share: OwnShare, error: BaseException, tb: TracebackType | None) -> None:
        line = f"{share.tenant.name}: {where(Path(share.own.file), error, tb)}"
        if line in self.errors or len(self.errors) < MOST_ERRORS:
            self.errors[line] = self.errors.get(line, 0) + 1
