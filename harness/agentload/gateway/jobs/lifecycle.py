"""One job, from the moment it is accepted to its end, as an explicit state machine. PURE.

    STORING ──Saved──> WAITING ──Asked──> ASKING ──Granted──> CLAIMING ──Saved──> RUNNING
                          ^                  │ parked             │ not saved        │ Ended, TimeUp, Cancel
                          ├──────────────────┴────────────────────┘                  v
                          └───────────────────── Saved (its next step) ────────── SETTLING ──Saved──> ENDED

Nothing is believed before it is safe: a step is begun (Begin) when its lease has been saved, and a job moves
on when the result has been. While a write is under way no other is made for the job: what happens meanwhile
(a cancel, the end of what was granted) is remembered until it is over. A write that fails is made again, for
as long as the process lives; a write that is fenced means that somebody else has the job (LOST), or that it
has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from msgspec.structs import replace

from agentload.gateway.jobs import states
from agentload.gateway.jobs.delivery import Deliveries
from agentload.gateway.jobs.model import NS, Job, JobState, Step, StepEnd, Verdict
from agentload.gateway.jobs.news import (
    Abandon,
    Asked,
    Begin,
    Cancel,
    Effect,
    Effects,
    Ended,
    Granted,
    NotRenewed,
    NotSaved,
    Release,
    Renewed,
    Saved,
    TimeUp,
    Wait,
    Write,
)
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.store import Fenced, Insert, Update
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.jobs_config import JobsSettings

REWRITE_NS = NS // 5
"""First wait before a write is made again; it doubles up to `REWRITE_MAX_NS`."""
REWRITE_MAX_NS = 5 * NS


class JobLifecycle:
    """One job. All times are Unix times in nanoseconds.

    `timer_ns` is the instant at which it wants to hear TimeUp; None: at none. The rules of `deliveries` can
    be replaced, to see what they are worth.
    """

    deliveries: ClassVar[type[Deliveries]] = Deliveries

    def __init__(
        self,
        job: Job,
        settings: JobsSettings,
        retry: RetryConfig,
        random: Random,
        *,
        owner: str,
        stored: bool = False,
    ) -> None:
        """`owner` names this process in leases. `stored`: its row is safe already."""
        self.job = job
        """Its row, as it is known to be safe."""
        self.phase = Phase.WAITING if stored else Phase.STORING
        self.timer_ns: int | None = None
        self.begun_ns = 0
        """When the present delivery was begun, in the phase RUNNING."""
        self.beyond = False
        """It was taken although its class was full: deferred until its turn comes."""
        self._settings = settings
        self._deliveries = self.deliveries(settings, retry, random)
        self._owner = owner
        self._writing: Insert | Update | None = None
        self._failed_writes = 0
        self._give_up_ns = 0
        self._end: StepEnd | None = None
        """How what was granted ended while its lease was being saved."""
        self._wish: JobState | None = None
        """What is to become of it as soon as the write under way is over."""

    @property
    def step(self) -> Step:
        """The step that is next or under way."""
        return self.job.steps[self.job.step]

    @property
    def asks_admission(self) -> bool:
        """Whether the step that is next or under way is a chat call (a tool's passes the gate)."""
        return self.step.chat is not None

    def patience_s(self, at_ns: int) -> float:
        """How long a delivery that is begun now may take."""
        return self._deliveries.patience_s(self.job, at_ns)

    def handle(self, at_ns: int, event: object) -> Effects:
        """Take one event; what is to be done now, in order."""
        step = self._STEPS[self.phase].get(type(event))
        effects = step(self, at_ns, event) if step is not None else []
        self._arm(at_ns)
        return effects

    def insert(self) -> Effects:
        """The first write."""
        return self._write(Insert(self.job))

    def recovered(self, at_ns: int) -> Effects:
        """It was found in the store: what its former process had under way has failed."""
        job, effects = self.job, list[Effect]([Wait()])
        if job.state is JobState.RUNNING:
            effects = self._reclaim(at_ns, states.LEASE_ORPHANED, "the gateway that ran it has ended")
        self._arm(at_ns)
        return effects

    # ----------------------------------------------------------------- storing

    def _stored(self, _: int, event: Saved) -> Effects:
        self._writing = None
        if isinstance(event.outcome, Fenced):
            self.phase = Phase.LOST
            return []
        self.phase = Phase.WAITING
        return [Wait()]

    def _not_stored(self, _: int, __: NotSaved) -> Effects:
        self.phase = Phase.LOST
        return []

    # ----------------------------------------------------------------- waiting and asking

    def _asked(self, _: int, __: Asked) -> Effects:
        self.phase, self.beyond = Phase.ASKING, False
        return []

    def _granted(self, at_ns: int, _: Granted) -> Effects:
        if self._cannot_end_in_time(at_ns):
            return [Abandon(), *self._expire(at_ns, "deadline_unmeetable")]
        self.phase = Phase.CLAIMING
        lease_ns = round(self._settings.lease_s * NS)
        return self._write(self._update(states.claim(self.job, self._owner, at_ns + lease_ns)))

    def _cannot_end_in_time(self, at_ns: int) -> bool:
        """Of a tool, by what it is expected to take; admission asks the same of a chat step."""
        tool = self.step.tool
        return tool is not None and at_ns + round(tool.seconds * NS) > self.job.deadline_at_ns

    def _not_let_in(self, at_ns: int, event: Ended) -> Effects:
        match event.end.verdict:
            case Verdict.EXPIRED:
                return self._expire(at_ns, event.end.reason)
            case Verdict.REFUSED:
                end = event.end
                return self._settle(states.end(self.job, at_ns, JobState.FAILED, end.reason, end.message))
            case _:
                self.phase = Phase.WAITING
                return [Wait()]

    def _time_up_waiting(self, at_ns: int, _: TimeUp) -> Effects:
        if at_ns >= self.job.deadline_at_ns:
            return self._expire(at_ns, "deadline_exceeded")
        return [Wait()]

    def _time_up_asking(self, at_ns: int, _: TimeUp) -> Effects:
        if at_ns < self.job.deadline_at_ns:
            return []
        return [Abandon(), *self._expire(at_ns, "deadline_exceeded")]

    def _cancel_waiting(self, at_ns: int, _: Cancel) -> Effects:
        return self._settle(states.end(self.job, at_ns, JobState.CANCELLED, "cancelled"))

    def _cancel_active(self, at_ns: int, event: Cancel) -> Effects:
        return [Abandon(), *self._cancel_waiting(at_ns, event)]

    def _stop_asking(self, _: int, __: Release) -> Effects:
        self.phase = Phase.WAITING
        return [Abandon(), Wait()]

    # ----------------------------------------------------------------- claiming

    def _claimed(self, at_ns: int, event: Saved) -> Effects:
        if isinstance(event.outcome, Fenced):
            return [Abandon(), *self._fenced(event.outcome)]
        self._accept()
        if self._wish is not None:
            return self._granting_was_for_nothing(at_ns)
        if self._end is not None:
            end, self._end = self._end, None
            return self._delivered(at_ns, end)
        if at_ns >= self.job.deadline_at_ns:
            return [Abandon(), *self._expire(at_ns, "deadline_exceeded")]
        self.phase = Phase.RUNNING
        self.begun_ns = at_ns
        self._give_up_ns = at_ns + round(self.patience_s(at_ns) * NS)
        return [Begin()]

    def _granting_was_for_nothing(self, at_ns: int) -> Effects:
        if self._wish is JobState.CANCELLED:
            return self._settle(states.end(self.job, at_ns, JobState.CANCELLED, "cancelled"))
        self._wish = None
        return self._settle(states.release(self.job))

    def _not_claimed(self, at_ns: int, _: NotSaved) -> Effects:
        """Without a lease nothing is begun. It did not count as a delivery."""
        self.phase, self._writing, self._end = Phase.WAITING, None, None
        wish, self._wish = self._wish, None
        if wish is JobState.CANCELLED:
            return [Abandon(), *self._cancel_waiting(at_ns, Cancel())]
        self.job = replace(self.job, not_before_ns=at_ns + self._rewrite_wait_ns())
        return [Abandon(), Wait()]

    def _ended_early(self, _: int, event: Ended) -> Effects:
        self._end = event.end
        return []

    def _cancel_claim(self, _: int, __: Cancel) -> Effects:
        self._wish = JobState.CANCELLED
        return [Abandon()]

    def _release_claim(self, _: int, __: Release) -> Effects:
        self._wish = self._wish or JobState.QUEUED
        return [Abandon()]

    # ----------------------------------------------------------------- running

    def _delivered(self, at_ns: int, event: Ended | StepEnd) -> Effects:
        end = event.end if isinstance(event, Ended) else event
        return self._settle(self._deliveries.ended(self.job, at_ns, self.begun_ns, end))

    def _renewed(self, _: int, event: Renewed) -> Effects:
        self.job = replace(self.job, leased_until_ns=event.leased_until_ns)
        return []

    def _not_renewed(self, _: int, event: NotRenewed) -> Effects:
        return [Abandon(), *self._fenced(event.fenced)]

    def _time_up_running(self, at_ns: int, _: TimeUp) -> Effects:
        if at_ns >= self.job.deadline_at_ns:
            return [Abandon(), *self._expire(at_ns, "deadline_exceeded")]
        if at_ns >= self.job.leased_until_ns:
            lapsed = "its holder was not heard of for a whole lease"
            return [Abandon(), *self._reclaim(at_ns, states.LEASE_LAPSED, lapsed)]
        if at_ns < self._give_up_ns:
            return []
        reason = "tool_timeout" if self.step.tool is not None else "step_timeout"
        end = StepEnd(verdict=Verdict.RETRY, reason=reason, message="it took longer than it may")
        return [Abandon(), *self._settle(self._deliveries.failed(self.job, at_ns, end))]

    def _release_running(self, _: int, __: Release) -> Effects:
        return [Abandon(), *self._settle(states.release(self.job))]

    def _reclaim(self, at_ns: int, reason: str, message: str) -> Effects:
        """Take the job from a holder that has lost its lease; its step goes through admission again."""
        return self._settle(states.orphaned(self.job, at_ns, reason, message))

    # ----------------------------------------------------------------- settling

    def _settled(self, at_ns: int, event: Saved) -> Effects:
        if isinstance(event.outcome, Fenced):
            return self._fenced(event.outcome)
        self._accept()
        if self.job.state.ended:
            self.phase = Phase.ENDED
            return []
        if self._wish is JobState.CANCELLED:
            return self._cancel_waiting(at_ns, Cancel())
        self.phase = Phase.WAITING
        return [Wait()]

    def _not_settled(self, at_ns: int, _: NotSaved) -> Effects:
        self.timer_ns = at_ns + self._rewrite_wait_ns()
        return []

    def _write_again(self, _: int, __: TimeUp) -> Effects:
        assert self._writing is not None
        return self._write(self._writing)

    def _cancel_later(self, _: int, __: Cancel) -> Effects:
        self._wish = JobState.CANCELLED
        return []

    # ----------------------------------------------------------------- writing

    def _update(self, job: Job) -> Update:
        return Update(job, self.job.token)

    def _write(self, change: Insert | Update) -> Effects:
        self._writing, self.timer_ns = change, None
        return [Write(change)]

    def _settle(self, job: Job) -> Effects:
        self.phase = Phase.SETTLING
        return self._write(self._update(job))

    def _expire(self, at_ns: int, reason: str) -> Effects:
        return self._settle(states.expired(self.job, at_ns, reason))

    def _accept(self) -> None:
        """What was being written is safe."""
        assert self._writing is not None
        self.job, self._writing, self._failed_writes = self._writing.job, None, 0

    def _fenced(self, outcome: Fenced) -> Effects:
        """The row is not what we thought: it has ended, or somebody has it, or a write of ours that seemed to
        fail has been made after all."""
        standing, self._writing, self._end, self._wish = outcome.standing, None, None, None
        if standing is None:
            self.phase = Phase.LOST
            return []
        theirs = standing.state is JobState.RUNNING and standing.owner != self._owner
        self.job = standing
        if standing.state.ended:
            self.phase = Phase.ENDED
        elif theirs:
            self.phase = Phase.LOST
        else:
            self.phase = Phase.WAITING
            return [Wait()]
        return []

    def _rewrite_wait_ns(self) -> int:
        self._failed_writes += 1
        return min(REWRITE_MAX_NS, REWRITE_NS << min(self._failed_writes - 1, 10))

    # ----------------------------------------------------------------- times

    def _arm(self, at_ns: int) -> None:
        """Set the timer for the present phase (SETTLING sets its own, after a write that failed)."""
        job = self.job
        match self.phase:
            case Phase.WAITING:
                later = job.not_before_ns > at_ns
                self.timer_ns = min(job.deadline_at_ns, job.not_before_ns if later else job.deadline_at_ns)
            case Phase.ASKING:
                self.timer_ns = job.deadline_at_ns
            case Phase.RUNNING:
                self.timer_ns = min(job.deadline_at_ns, job.leased_until_ns, self._give_up_ns)
            case Phase.SETTLING:
                pass
            case _:
                self.timer_ns = None

    # ----------------------------------------------------------------- the table

    _STEPS: ClassVar[dict[Phase, dict[type, Callable[[JobLifecycle, int, Any], Effects]]]] = {
        Phase.STORING: {Saved: _stored, NotSaved: _not_stored},
        Phase.WAITING: {Asked: _asked, TimeUp: _time_up_waiting, Cancel: _cancel_waiting},
        Phase.ASKING: {
            Granted: _granted,
            Ended: _not_let_in,
            TimeUp: _time_up_asking,
            Cancel: _cancel_active,
            Release: _stop_asking,
        },
        Phase.CLAIMING: {
            Saved: _claimed,
            NotSaved: _not_claimed,
            Ended: _ended_early,
            Cancel: _cancel_claim,
            Release: _release_claim,
        },
        Phase.RUNNING: {
            Ended: _delivered,
            Renewed: _renewed,
            NotRenewed: _not_renewed,
            TimeUp: _time_up_running,
            Cancel: _cancel_active,
            Release: _release_running,
        },
        Phase.SETTLING: {
            Saved: _settled,
            NotSaved: _not_settled,
            TimeUp: _write_again,
            Cancel: _cancel_later,
        },
        Phase.ENDED: {},
        Phase.LOST: {},
    }
    """Which event does what in which phase. What is not listed is ignored: late news."""
