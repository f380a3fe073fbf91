"""The load in virtual time: what `drivers/load.py` and `drivers/caller.py` do with greenlets and sockets.

Every arrival begins at its due time whatever the answers do; a closed-loop user sends its next job when the
last has ended; when to leave, whether to come back and how it went are decided by `logical` and by the table
in `wire`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Protocol

from agentload.behaviours import Behaviour
from agentload.client.logical import LEFT, AttemptResult, AttemptStart, LogicalRequest
from agentload.client.wire import Ending
from agentload.drivers.simulated.answer import AnswerReader
from agentload.drivers.simulated.digest import EventLog
from agentload.drivers.simulated.gateway import Caller
from agentload.drivers.simulated.job_clients import JobClients
from agentload.drivers.simulated.kernel import OBSERVE, TIMER, Kernel
from agentload.drivers.simulated.messages import Submission, Submitter
from agentload.drivers.simulated.network import Timing
from agentload.errors import UsageError
from agentload.evidence.history import STOPPED
from agentload.gateway.protocol import Action, EndStream, FailStream, ForwardData, ForwardHeaders, Respond
from agentload.model import NS, Arrival, JobOrder, Outcome, RequestRecord
from agentload.plan import ClosedLoops, ClosedUser

TIMEOUT = "timeout"
"""The reason of a client whose timeout ran out, as the live client's transport words it."""
ERROR_EVENT = "error-event"
_ERROR_CODE = re.compile(rb'"code": ?"([^"]+)"')
MAX_CLOSED_JOBS = 2_000_000
"""As many as a plan may hold: every record stays in memory."""


@lru_cache
def _error_in(event: bytes) -> str:
    """The code of the error that a server-sent event reports, as the live client reads it."""
    found = _ERROR_CODE.search(event)
    return found[1].decode("latin-1") if found else ERROR_EVENT


class Front(Protocol):
    """The gateway's front door."""

    def arrive(self, caller: Caller) -> None: ...

    def leave(self, caller: Caller) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Who wants what, and how they take refusals."""

    arrivals: Iterable[Arrival]
    """In order of due_ns."""
    behaviours: Mapping[str, Behaviour]
    """By tenant."""
    places: Mapping[str, int]
    """Tenant → its number in markers."""
    seed: int
    horizon_ns: int
    """End of the drain: what is open then is unfinished."""
    loops: ClosedLoops | None = None
    users: tuple[ClosedUser, ...] = field(default=())
    orders: Mapping[str, JobOrder] = field(default_factory=dict[str, JobOrder])
    """By tenant: those whose arrivals are durable jobs."""
    max_closed_jobs: int = MAX_CLOSED_JOBS
    """Jobs of closed loops, all together, before the run is given up."""


class Flow:
    """One logical request on its way."""

    __slots__ = ("job", "request", "user")

    def __init__(self, request: LogicalRequest, user: ClosedUser | None, job: int) -> None:
        self.request = request
        self.user = user
        """Who sends the next one when this is over; None in an open loop."""
        self.job = job
        """Which of the user's jobs it is."""


class Attempt:
    """One attempt in flight."""

    __slots__ = (
        "_clients",
        "cuts_ns",
        "flow",
        "leave_handle",
        "number",
        "reader",
        "sent_ns",
        "start",
        "submission",
    )

    def __init__(
        self,
        clients: Clients,
        number: int,
        flow: Flow,
        start: AttemptStart,
        submission: Submission,
        sent_ns: int,
    ) -> None:
        arrival = submission.arrival
        self._clients = clients
        self.number = number
        self.flow = flow
        self.start = start
        self.submission = submission
        self.sent_ns = sent_ns
        self.reader = AnswerReader(arrival.job.stream, arrival.seq)
        self.cuts_ns: tuple[int, ...] | None = None
        self.leave_handle = 0

    def hear(self, action: Action) -> None:
        """The gateway says something."""
        self._clients.hear(self, action)

    def cut(self, reason: str) -> None:
        """The connection is gone, or never came about."""
        self._clients.cut(self, reason)


class Clients:
    """All clients of a run. `keep` takes every record; `idle` is called once, when nothing is left to do."""

    def __init__(
        self,
        kernel: Kernel,
        timing: Timing,
        demand: Demand,
        submitter: Submitter,
        log: EventLog,
        *,
        keep: Callable[[RequestRecord], None],
        idle: Callable[[], None],
    ) -> None:
        self.kernel = kernel
        self.timing = timing
        self.demand = demand
        self.front: Front
        """Connected by the world before it begins."""
        self.jobs: JobClients | None = None
        """Those of durable jobs; None: nobody wants any."""
        self.scheduled = 0
        """Arrivals and closed-loop jobs that have come due."""
        self.issued = 0
        self.records = 0
        self.peak_in_flight = 0
        self._submitter = submitter
        self._log = log
        self._keep = keep
        self._idle = idle
        self._upcoming: Iterator[Arrival] = iter(demand.arrivals)
        self._next: Arrival | None = None
        self._open: dict[int, Attempt] = {}
        self._flows = 0
        """Logical requests under way, waits for a retry included."""
        self._retrying: dict[int, Flow] = {}
        """Those that wait for a retry, by seq."""
        self.attempts = 0
        """Attempts sent."""
        self._closed_jobs = 0
        self._players = 0
        """Users who will send again."""
        self._exhausted = False
        self._stopped = False

    @property
    def in_flight(self) -> int:
        """Attempts in flight."""
        return len(self._open)

    def begin(self) -> None:
        """Set the clocks of all arrivals and users; the kernel does the rest."""
        for user in self.demand.users:
            if self.demand.loops is not None:
                self._schedule(user, 0, self.demand.loops.first_due_ns(user))
        self._next_arrival()
        self.kernel.at(self.demand.horizon_ns, self._end_of_drain, None, OBSERVE)

    def stop(self) -> None:
        """Send nothing more: what is open is unfinished, what is still to come was never sent."""
        self._stopped = True
        self._end_of_drain(None)
        for flow in list(self._retrying.values()):
            self._give_up(flow)
        for arrival in chain(() if self._next is None else (self._next,), self._upcoming):
            self.scheduled += 1
            self._flows += 1
            self._give_up(Flow(self._logical(arrival), None, 0))

    # ----------------------------------------------------------------- arrivals

    def _next_arrival(self) -> None:
        self._next = arrival = next(self._upcoming, None)
        if arrival is None:
            self._exhausted = True
            self._perhaps_idle()
        else:
            self.kernel.at(arrival.due_ns, self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        if not self._stopped:
            self._begin(arrival, None, 0)
            self._next_arrival()

    def _schedule(self, user: ClosedUser, job: int, due_ns: int | None) -> None:
        if due_ns is not None:
            self._players += 1
            self.kernel.at(due_ns, self._play, (user, job, due_ns))

    def _play(self, turn: tuple[ClosedUser, int, int]) -> None:
        user, job, due_ns = turn
        self._players -= 1
        if self.demand.loops is not None and not self._stopped:
            self._count_closed_job()
            self._begin(self.demand.loops.arrival(user, job, due_ns), user, job)

    def _count_closed_job(self) -> None:
        """How many jobs closed loops send is only known once they are answered or refused."""
        self._closed_jobs += 1
        if self._closed_jobs > self.demand.max_closed_jobs:
            raise UsageError(
                f"the {len(self.demand.users)} users of closed loops have sent {self.demand.max_closed_jobs} "
                f"requests by {self.kernel.now_ns / NS:.1f} s of virtual time, the most that a run may hold: "
                "take fewer users, a longer think_s or shorter phases"
            )

    def _begin(self, arrival: Arrival, user: ClosedUser | None, job: int) -> None:
        self.scheduled += 1
        self._flows += 1
        if self.jobs is not None and arrival.tenant in self.demand.orders:
            self.jobs.begin(arrival)
        else:
            self._attempt(Flow(self._logical(arrival), user, job))

    def _logical(self, arrival: Arrival) -> LogicalRequest:
        demand = self.demand
        return LogicalRequest(arrival, demand.behaviours[arrival.tenant], demand.seed, demand.horizon_ns)

    # ----------------------------------------------------------------- attempts

    def _attempt(self, flow: Flow) -> None:
        now_ns, arrival = self.kernel.now_ns, flow.request.arrival
        start = flow.request.start(now_ns)
        submission = self._submitter.write(arrival, start, now_ns)
        self.attempts += 1
        attempt = Attempt(self, self.attempts, flow, start, submission, now_ns)
        if arrival.job.stream and arrival.job.deadline_ns is None and start.leave_after_tokens is None:
            attempt.cuts_ns = self._cuts_ns(start.timeout_at_ns)
        leave_ns = start.timeout_at_ns
        if start.leave_at_ns is not None:
            leave_ns = min(leave_ns, start.leave_at_ns)
        attempt.leave_handle = self.kernel.at(leave_ns, self._leave, attempt, TIMER)
        self._open[attempt.number] = attempt
        self.issued += start.number == 0
        self.peak_in_flight = max(self.peak_in_flight, len(self._open))
        self._log.add(now_ns, arrival.seq, arrival.tenant, "sent", "")
        self._send(self.front.arrive, attempt)

    def _cuts_ns(self, timeout_at_ns: int) -> tuple[int, ...]:
        """What must be on its way by then to be heard: our patience ends, or the run does."""
        before_ns = 2 * self.timing.one_way_ns + self.timing.timer_grain_ns
        return (timeout_at_ns - before_ns, self.demand.horizon_ns - before_ns)

    def _leave(self, attempt: Attempt) -> None:
        """Patience is at its end, or the tokens were enough."""
        self._send(self.front.leave, attempt)
        timed_out = self.kernel.now_ns >= attempt.start.timeout_at_ns
        self._ended(attempt, Ending.LEFT, TIMEOUT if timed_out else LEFT)

    def cut(self, attempt: Attempt, reason: str) -> None:
        """A connection is gone: what has come by then is all there is."""
        if attempt.number in self._open:
            self.kernel.cancel(attempt.leave_handle)
            self._ended(attempt, Ending.CUT, reason)

    def hear(self, attempt: Attempt, action: Action) -> None:
        """The gateway says something. Nobody listens once the attempt is over."""
        if attempt.number not in self._open:
            return
        reader = attempt.reader
        match action:
            case Respond():
                reader.head(action.status, action.headers)
                if action.status == 200:
                    reader.body(action.body, self.kernel.now_ns)
                self._finish(attempt)
            case ForwardHeaders():
                reader.head(action.status, action.headers)
            case ForwardData():
                reader.body(action.data, self.kernel.now_ns)
                if reader.is_whole:
                    self._finish(attempt)
                elif attempt.start.leave_at_ns is not None or attempt.start.leave_after_tokens is not None:
                    self._consider(attempt)
            case FailStream():
                reader.spoil(_error_in(action.data))
                self._finish(attempt)
            case EndStream():
                self._finish(attempt)
            case _:
                raise AssertionError(f"not for a client: {action}")

    def _consider(self, attempt: Attempt) -> None:
        """Something has come: was it what the client waited for, and was it enough?"""
        start, tokens = attempt.start, attempt.reader.tokens
        enough = start.leave_after_tokens is not None and tokens >= start.leave_after_tokens
        if enough or tokens:
            self.kernel.cancel(attempt.leave_handle)
        if enough:
            self._leave(attempt)
        elif tokens:
            attempt.leave_handle = self.kernel.at(start.timeout_at_ns, self._leave, attempt, TIMER)

    def _finish(self, attempt: Attempt) -> None:
        self.kernel.cancel(attempt.leave_handle)
        self._ended(attempt, Ending.COMPLETE)

    def _ended(self, attempt: Attempt, ending: Ending, transport_error: str | None = None) -> None:
        del self._open[attempt.number]
        now_ns, flow = self.kernel.now_ns, attempt.flow
        result = attempt.reader.result(ending, now_ns, attempt.sent_ns, transport_error)
        record, next_due_ns = flow.request.ended(now_ns, result)
        self._record(record)
        if next_due_ns is None:
            self._over(flow, record)
        else:
            self._retrying[record.seq] = flow
            self.kernel.at(next_due_ns, self._retry, flow)

    def _retry(self, flow: Flow) -> None:
        if not self._stopped:
            del self._retrying[flow.request.arrival.seq]
            self._attempt(flow)

    def _over(self, flow: Flow, last: RequestRecord) -> None:
        self._flows -= 1
        loops = self.demand.loops
        if flow.user is not None and loops is not None:
            answered = last.outcome is Outcome.ANSWERED
            due_ns = loops.next_due_ns(flow.user, last.ended_ns, answered=answered)
            self._schedule(flow.user, flow.job + 1, due_ns)
        self._perhaps_idle()

    def posted(self, record: RequestRecord) -> None:
        """A job was posted, or it was tried."""
        self.issued += record.attempt == 0
        self._record(record)

    def job_over(self) -> None:
        """A job is not pursued any further."""
        self._flows -= 1
        self._perhaps_idle()

    def _record(self, record: RequestRecord) -> None:
        self.records += 1
        event = "final" if record.final else "ended"
        self._log.add(record.ended_ns, record.seq, record.tenant, event, f"{record.outcome} {record.status}")
        self._keep(record)

    def _send(self, callback: Callable[[Caller], None], attempt: Attempt) -> None:
        self.kernel.at(self.kernel.now_ns + self.timing.one_way_ns, callback, attempt)

    # ----------------------------------------------------------------- endings

    def _end_of_drain(self, _: None) -> None:
        for attempt in list(self._open.values()):
            self.kernel.cancel(attempt.leave_handle)
            self._send(self.front.leave, attempt)
            self._ended(attempt, Ending.OPEN)
        if self.jobs is not None:
            self.jobs.end()

    def _give_up(self, flow: Flow) -> None:
        """The next attempt of a run that was stopped: never sent."""
        now_ns = self.kernel.now_ns
        at_ns = max(now_ns, flow.request.start(now_ns).due_ns)
        result = AttemptResult(outcome=Outcome.UNSENT, sent_ns=at_ns, reason=STOPPED)
        record, _ = flow.request.ended(at_ns, result)
        self._record(record)
        self._over(flow, record)

    def _perhaps_idle(self) -> None:
        if self._exhausted and not self._flows and not self._players:
            self._idle()
