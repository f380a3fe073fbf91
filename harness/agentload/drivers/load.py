"""A worker's share of the load: every arrival at its due time, whatever the answers do; every ending named.

One greenlet (of a `Crew`) for each logical request in progress. What to send, when to leave, whether to try
again and how it ended are decided by `logical` and `wire`; this file only waits, counts and keeps the cap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import gevent

from agentload.behaviours import Behaviour
from agentload.caps import Allowance
from agentload.client.logical import AttemptResult, AttemptStart, LogicalRequest
from agentload.drivers.call import Call
from agentload.drivers.clock import RunClock
from agentload.drivers.crew import Crew
from agentload.drivers.job_load import JobCalls, JobLoad
from agentload.drivers.tally import Tally
from agentload.drivers.ticker import make_ticker
from agentload.evidence.history import GENERATOR_ERROR, STOPPED
from agentload.model import Arrival, JobOrder, JobRecord, Outcome, RequestRecord
from agentload.plan import ClosedLoops, ClosedUser

POLL_S = 0.05
"""How much later than possible a run may end: waking up is not free. The horizon is kept exactly."""
BEHIND_BEFORE_YIELD = 16
"""Arrivals started in a row when behind: then those already started get their turn."""
SKIPS_BEFORE_YIELD = 1_000
CAPPED = "in-flight-cap"
RATE_CAPPED = "rate-cap"
NOT_BEGUN = "not-begun-at-the-end"

Task = Any
"""A gevent.Greenlet (its stubs cannot say which)."""

log = logging.getLogger(__name__)


class Calls(Protocol):
    """Who makes the attempts: `Caller`, or a stand-in."""

    def call(self, arrival: Arrival, start: AttemptStart) -> Call:
        """Make one attempt."""
        ...


Keep = Callable[[RequestRecord, Call | None], None]
"""Who takes the records; the call is None where nothing was sent."""


@dataclass(frozen=True)
class Share:
    """What one worker has to do."""

    arrivals: tuple[Arrival, ...]
    users: tuple[ClosedUser, ...]
    loops: ClosedLoops
    behaviours: Mapping[str, Behaviour]
    """By tenant."""
    seed: int
    horizon_ns: int
    """End of the drain: what is open then is unfinished."""
    in_flight_cap: int
    max_rate: float | None = None
    """Attempts in any second; None: as many as come."""
    orders: Mapping[str, JobOrder] = field(default_factory=dict[str, JobOrder])
    """By tenant: those whose arrivals are durable jobs."""


class Load:
    """Runs one share. `run` blocks until the end; `stop` may be called from another greenlet."""

    def __init__(
        self,
        share: Share,
        calls: Calls,
        clock: RunClock,
        tally: Tally,
        keep: Keep,
        jobs: tuple[JobCalls, Callable[[JobRecord], None]] | None = None,
    ) -> None:
        """`jobs`: who makes the exchanges about durable jobs, and who takes their records."""
        self.share = share
        self.calls = calls
        self.clock = clock
        self.tally = tally
        self.keep = keep
        self.scheduled = len(share.arrivals)
        """Arrivals of the share, and closed-loop jobs that have come due."""
        self._issued = 0
        self._jobs: JobLoad | None = None
        if jobs is not None and share.orders:
            self._jobs = JobLoad(share.orders, jobs[0], clock, tally, keep, jobs[1])
        self.capped = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self._horizon_ns = share.horizon_ns
        self._stopping = False
        self._next = 0
        self._crew: Crew[Arrival] = Crew(self._serve if self._jobs is None else self._serve_or_pursue)
        self.allowance: Allowance | None = None
        if share.max_rate is not None:
            self.allowance = Allowance(share.max_rate, (arrival.due_ns for arrival in share.arrivals))
        self.beside: Callable[[], int] = lambda: 0
        """Connections at work that are others' and count, too: of users' own code."""
        self._players: list[Task] = []
        self._pacer: Task = None
        self._waiting: set[Task] = set()

    @property
    def issued(self) -> int:
        """Logical requests whose first attempt was sent."""
        return self._issued + (0 if self._jobs is None else self._jobs.issued)

    def run(self) -> None:
        """Issue every request when it is due, wait for the answers until the horizon, name what is left."""
        self._pacer = gevent.spawn(self._pace)
        self._players = [gevent.spawn(self._play, user) for user in self.share.users]
        while self._busy() and (left_ns := self._horizon_ns - self.clock.now_ns()) > 0:
            gevent.sleep(min(POLL_S, left_ns / 1e9))
        self._finish()

    def stop(self, drain_s: float) -> None:
        """Send nothing more, and wait for what is open no longer than `drain_s`."""
        self._stopping = True
        self._horizon_ns = min(self._horizon_ns, self.clock.now_ns() + round(drain_s * 1e9))
        if self._pacer is not None:
            self._pacer.kill(block=False)
        gevent.killall(list(self._waiting), block=False)

    # -- open loop

    def _pace(self) -> None:
        ticker, behind = make_ticker(), 0
        try:
            for arrival in self.share.arrivals:
                if arrival.due_ns > self.clock.now_ns():
                    behind = 0
                    self.clock.tick_until(ticker, arrival.due_ns)
                elif (behind := behind + 1) % BEHIND_BEFORE_YIELD == 0:
                    gevent.sleep(0)
                self._next += 1
                self._begin(arrival)
        finally:
            ticker.close()

    def _begin(self, arrival: Arrival) -> None:
        if (why_not := self._reserve(planned=True)) is None:
            self._crew.hand(arrival)
        else:
            self._skip(arrival, why_not)

    # -- closed loops

    def _play(self, user: ClosedUser) -> None:
        loops, job = self.share.loops, 0
        due_ns = loops.first_due_ns(user)
        while due_ns is not None and self._wait_until(due_ns):
            arrival = loops.arrival(user, job, due_ns)
            self.scheduled += 1
            last = self._play_once(arrival)
            due_ns = loops.next_due_ns(user, last.ended_ns, answered=last.outcome is Outcome.ANSWERED)
            job += 1

    def _play_once(self, arrival: Arrival) -> RequestRecord:
        why_not = self._reserve()
        return self._serve(arrival) if why_not is None else self._skip(arrival, why_not)

    # -- durable jobs

    def _serve_or_pursue(self, arrival: Arrival) -> None:
        if self._jobs is None or arrival.tenant not in self._jobs.orders:
            self._serve(arrival)
            return
        try:
            self._jobs.pursue(arrival, self._horizon_ns, self._wait_until)
        except Exception:
            log.exception("job %d of tenant %s", arrival.seq, arrival.tenant)
        finally:
            self.in_flight -= 1

    # -- one logical request

    def _serve(self, arrival: Arrival) -> RequestRecord:
        """All attempts at one arrival (the first has its place already); returns the last record."""
        request = self._logical(arrival)
        try:
            while True:
                record, next_due_ns = self._attempt(request)
                if next_due_ns is None:
                    return record
                if not self._wait_until(next_due_ns):
                    return self._give_up(request, STOPPED)
                if (why_not := self._reserve()) is not None:
                    return self._give_up(request, why_not)
        except Exception:
            log.exception("request %d of tenant %s", arrival.seq, arrival.tenant)
            return self._give_up(request, GENERATOR_ERROR)

    def _attempt(self, request: LogicalRequest) -> tuple[RequestRecord, int | None]:
        arrival = request.arrival
        start = request.start(self.clock.now_ns())
        counts = self.tally.of(arrival.tenant)
        counts.in_flight += 1
        counts.offered += start.number == 0
        counts.retries += start.number > 0
        self._issued += start.number == 0
        try:
            call = self.calls.call(arrival, start)
        except Exception:
            self._issued -= start.number == 0
            raise
        finally:
            self.in_flight -= 1
            counts.in_flight -= 1
        record, next_due_ns = request.ended(call.ended_ns, call.result)
        if record.outcome is Outcome.UNSENT:
            self._issued -= record.attempt == 0
        self.keep(record, call)
        return record, next_due_ns

    def _give_up(self, request: LogicalRequest, reason: str) -> RequestRecord:
        """The next attempt is never sent."""
        now_ns = self.clock.now_ns()
        at_ns = max(now_ns, request.start(now_ns).due_ns)
        record, _ = request.ended(at_ns, AttemptResult(outcome=Outcome.UNSENT, sent_ns=at_ns, reason=reason))
        self.keep(record, None)
        return record

    def _skip(self, arrival: Arrival, reason: str) -> RequestRecord:
        """An arrival that is never sent at all."""
        self.tally.of(arrival.tenant).offered += 1
        return self._give_up(self._logical(arrival), reason)

    # -- the rest

    def _reserve(self, *, planned: bool = False) -> str | None:
        """Take a place among the attempts in flight: counted when a request is spawned, not when it runs.

        Why it may not, or None. `planned`: its second was looked at before the run.
        """
        if self.in_flight + self.beside() >= self.share.in_flight_cap:
            self.capped += 1
            return CAPPED
        if self.allowance is not None:
            take = self.allowance.plan if planned else self.allowance.take
            if not take(self.clock.now_ns()):
                return RATE_CAPPED
        self.in_flight += 1
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight
        return None

    def _wait_until(self, due_ns: int) -> bool:
        """False when the run was stopped meanwhile."""
        if self._stopping or due_ns <= self.clock.now_ns():
            return not self._stopping
        me: Task = gevent.getcurrent()
        self._waiting.add(me)
        try:
            self.clock.sleep_until(due_ns)
        except gevent.GreenletExit:
            return False
        finally:
            self._waiting.discard(me)
        return not self._stopping

    def _busy(self) -> bool:
        return bool(self._crew.busy) or not self._pacer.dead or not all(one.dead for one in self._players)

    def _finish(self) -> None:
        """Whatever is still open is unfinished, whatever was not sent is unsent."""
        self._stopping = True
        gevent.killall([self._pacer, *self._players], block=True)
        for arrival in self._crew.dismiss():
            self._skip(arrival, NOT_BEGUN)
        for place, arrival in enumerate(self.share.arrivals[self._next :]):
            self._skip(arrival, STOPPED)
            if place % SKIPS_BEFORE_YIELD == 0:
                gevent.sleep(0)

    def _logical(self, arrival: Arrival) -> LogicalRequest:
        share = self.share
        return LogicalRequest(arrival, share.behaviours[arrival.tenant], share.seed, share.horizon_ns)
