"""All jobs of one gateway process: events in, actions out. PURE.

It sits beside a GatewayCore (see `front.py`, which carries what passes between the two): chat steps are
requests at the gateway's own admission, tool steps pass the `ToolGate`. Whatever one call of `handle` wants
saved is one batch, and the shell makes many batches one transaction. What follows from
an event for the jobs is `at_work.py`'s.
"""

from __future__ import annotations

from typing import TypeAlias

from agentload.gateway.answers import Answer
from agentload.gateway.jobs import news, states, views
from agentload.gateway.jobs.at_work import CoreAction, JobsAtWork
from agentload.gateway.jobs.calls import declared_units
from agentload.gateway.jobs.desk import respond
from agentload.gateway.jobs.ends import of_tool
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import NS, Job, JobSpec, StepEnd, Verdict
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.protocol import (
    ChatPosted,
    JobAsked,
    JobDeleted,
    JobEvent,
    JobPosted,
    JobSubmitted,
    Recovered,
    Stored,
    StoreFailed,
    ToolAnswered,
    ToolFailed,
)
from agentload.gateway.jobs.store import Applied, Change, Fenced, Outcome, Renew
from agentload.gateway.protocol import Drain, Stop, Tick

CoreEvent: TypeAlias = JobEvent | Tick | Drain | Stop


class JobsCore(JobsAtWork):
    """Every decision about jobs. Not thread-safe: one loop drives it."""

    # ----------------------------------------------------------------- what others tell it

    def handle(self, now_ns: int, event: CoreEvent) -> list[CoreAction]:
        """Take one event; everything that is to be done now, in order."""
        at_ns = now_ns + self.wall_offset_ns
        match event:
            case JobPosted() | ChatPosted():
                self._posted(at_ns, event)
            case JobSubmitted():
                self._submitted(at_ns, event.request_id, event.spec, preferred=False)
            case JobAsked():
                self._asked(at_ns, event)
            case JobDeleted():
                self._deleted(at_ns, event)
            case Stored():
                self._stored(at_ns, event)
            case StoreFailed():
                self._store_failed(at_ns, event)
            case ToolAnswered():
                self._tool_ended(at_ns, event.call_id, of_tool(event, self.settings.max_output_bytes))
            case ToolFailed():
                end = StepEnd(verdict=Verdict.RETRY, reason=event.reason, message=event.message)
                self._tool_ended(at_ns, event.call_id, end)
            case Recovered():
                self._recovered(at_ns, event.jobs)
            case Tick():
                self._tick(at_ns)
            case Drain():
                self._drain(at_ns)
            case Stop():
                self._stop(at_ns)
        return self._finish(at_ns)

    def chat_granted(self, now_ns: int, request_id: int) -> list[CoreAction]:
        """Admission lets a chat step go; its call is held back until LetGo."""
        at_ns = now_ns + self.wall_offset_ns
        lifecycle = self._of(request_id)
        if lifecycle is not None:
            self._tell(at_ns, lifecycle, news.Granted())
        return self._finish(at_ns)

    def chat_ended(self, now_ns: int, request_id: int, end: StepEnd) -> list[CoreAction]:
        """A chat step's request has ended, in service or before."""
        at_ns = now_ns + self.wall_offset_ns
        lifecycle = self._of(request_id)
        if lifecycle is not None:
            self._underway.forget_request(lifecycle.job.number)
            if end.verdict is Verdict.PARKED:
                self._pause(at_ns, lifecycle.job, end)
            if end.verdict is Verdict.DONE and lifecycle.phase is Phase.RUNNING:
                self._desk.pace(lifecycle.job.service_class).chat(at_ns - lifecycle.begun_ns)
            self._tell(at_ns, lifecycle, news.Ended(end))
        return self._finish(at_ns)

    def next_wakeup_ns(self) -> int | None:
        """When to send a Tick at the latest; None when only another event can change anything."""
        oldest_ns = self.registry.oldest_end_ns()
        stale_ns = None if oldest_ns is None else oldest_ns + round(self.settings.retention_s * NS)
        due = (self._timers.next_ns(), self._turns.next_ns(), self._leases.due_ns, stale_ns)
        at_ns = min((one for one in due if one is not None), default=None)
        return None if at_ns is None else at_ns - self.wall_offset_ns

    # ----------------------------------------------------------------- requests

    def _posted(self, at_ns: int, event: JobPosted | ChatPosted) -> None:
        spec = self._desk.read(event)
        if isinstance(spec, JobSpec):
            self._submitted(at_ns, event.request_id, spec, preferred=isinstance(event, ChatPosted))
        else:
            self._out.append(respond(event.request_id, spec))

    def _submitted(self, at_ns: int, request_id: int, spec: JobSpec, *, preferred: bool) -> None:
        known = self.registry.with_key(spec.tenant, spec.key)
        refused: Answer | None
        if known is not None and known.job.digest != spec.digest:
            refused = views.refusal(views.CONFLICT)
        elif known is not None:
            return self._same_again(at_ns, known, request_id, preferred=preferred)
        elif self._draining:
            refused = self._desk.try_later(at_ns, views.SHUTTING_DOWN, spec.service_class)
        else:
            refused = self._desk.refused(at_ns, spec)
        if refused is not None:
            return self._out.append(respond(request_id, refused))
        lifecycle = self._new(at_ns, spec)
        self._desk.await_acceptance(lifecycle.job.number, request_id, preferred=preferred)
        return self._accept(at_ns, lifecycle)

    def _same_again(self, at_ns: int, known: JobLifecycle, request_id: int, *, preferred: bool) -> None:
        """The same key with the same body: the same answer, as soon as the job is safe."""
        if known.phase is Phase.STORING:
            self._desk.await_acceptance(known.job.number, request_id, preferred=preferred)
        else:
            self._out.append(self._desk.accept(at_ns, known, request_id, preferred=preferred))

    def _accept(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        """Nobody is told of it before it is safe."""
        self._carry_out(at_ns, lifecycle, lifecycle.insert())

    def _new(self, at_ns: int, spec: JobSpec) -> JobLifecycle:
        job = states.accepted(
            spec,
            at_ns,
            job_id=f"job_{self._random.getrandbits(80):020x}",
            number=self.registry.last_number + 1,
            units=declared_units(spec, self._estimation),
        )
        lifecycle = self._make(job, stored=False)
        lifecycle.beyond = self._desk.beyond(spec)
        self.registry.add(lifecycle)
        self._turns.join(job)
        return lifecycle

    def _asked(self, at_ns: int, event: JobAsked) -> None:
        found = self._desk.find(event.headers, event.job_id)
        if isinstance(found, JobLifecycle):
            self._out.append(self._desk.show(at_ns, found, event.request_id))
        else:
            self._out.append(respond(event.request_id, found))

    def _deleted(self, at_ns: int, event: JobDeleted) -> None:
        found = self._desk.find(event.headers, event.job_id)
        if not isinstance(found, JobLifecycle):
            self._out.append(respond(event.request_id, found))
        elif found.phase is Phase.ENDED:
            self._out.append(self._desk.show(at_ns, found, event.request_id))
        else:
            self._desk.await_end(found.job.number, event.request_id)
            self._tell(at_ns, found, news.Cancel())

    # ----------------------------------------------------------------- the store

    def _recovered(self, at_ns: int, found: tuple[Job, ...]) -> None:
        for job in found:
            lifecycle = self._make(job, stored=True)
            if job.state.ended:
                lifecycle.phase = Phase.ENDED
                self.registry.add(lifecycle)
                continue
            self.registry.add(lifecycle)
            self._turns.join(job)
            effects = lifecycle.recovered(at_ns)
            self._moved(at_ns, lifecycle, Phase.WAITING)
            self._carry_out(at_ns, lifecycle, effects)

    def _stored(self, at_ns: int, event: Stored) -> None:
        changes = self._batches.answered(event.batch)
        for (lifecycle, change), outcome in zip(changes, event.outcomes, strict=True):
            self.counters.fenced += isinstance(outcome, Fenced)
            if lifecycle is not None:
                self._saved(at_ns, lifecycle, change, outcome)

    def _saved(self, at_ns: int, lifecycle: JobLifecycle, change: Change, outcome: Outcome) -> None:
        if isinstance(change, Renew):
            if isinstance(outcome, Applied):
                self._tell(at_ns, lifecycle, news.Renewed(change.leased_until_ns))
            else:
                self._tell(at_ns, lifecycle, news.NotRenewed(outcome))
            return
        new = lifecycle.phase is Phase.STORING
        self._tell(at_ns, lifecycle, news.Saved(outcome))
        if new and lifecycle.phase is not Phase.LOST:
            self.counters.accepted += 1
            self._out.extend(self._desk.accepted(at_ns, lifecycle))

    def _store_failed(self, at_ns: int, event: StoreFailed) -> None:
        self.counters.store_failures += 1
        for lifecycle, change in self._batches.answered(event.batch):
            if lifecycle is None or isinstance(change, Renew):
                continue  # a lease that cannot be renewed lapses
            if lifecycle.phase is Phase.STORING:
                self._out.extend(self._desk.not_accepted(at_ns, lifecycle))
            self._tell(at_ns, lifecycle, news.NotSaved())
            self._out.extend(self._desk.not_ended(at_ns, lifecycle))

    # ----------------------------------------------------------------- time

    def _tick(self, at_ns: int) -> None:
        while (number := self._timers.pop_due(at_ns)) is not None:
            lifecycle = self.registry.by_number.get(number)
            if lifecycle is not None:
                self._tell(at_ns, lifecycle, news.TimeUp())
        self._turns.wake(at_ns)
        if self._leases.due_ns is not None and at_ns >= self._leases.due_ns:
            self._beat(at_ns)
        self._prune(at_ns)

    def _beat(self, at_ns: int) -> None:
        """Renew every lease that is held."""
        for lifecycle, renewal in self._leases.renewals(at_ns):
            self._batches.add(lifecycle, renewal)

    def _drain(self, at_ns: int) -> None:
        """Take no more, and begin nothing; what is in service may finish."""
        self._draining = True
        for number in self._underway.requests:
            lifecycle = self.registry.by_number[number]
            if lifecycle.phase is Phase.ASKING:
                self._tell(at_ns, lifecycle, news.Release())

    def _stop(self, at_ns: int) -> None:
        """Give back what is in service."""
        self._draining = True
        for number in self._underway.jobs:
            lifecycle = self.registry.by_number.get(number)
            if lifecycle is not None:
                self._tell(at_ns, lifecycle, news.Release())

    # ----------------------------------------------------------------- ends of steps

    def _tool_ended(self, at_ns: int, call_id: int, end: StepEnd) -> None:
        lifecycle = self._of(call_id)
        if lifecycle is not None:
            self._underway.forget_call(lifecycle.job.number)
            self._tell(at_ns, lifecycle, news.Ended(end))

    def _pause(self, at_ns: int, job: Job, end: StepEnd) -> None:
        """Admission will have none of this lane now: it asks again when it was told to, not before."""
        self.counters.parked += 1
        wait_s = end.retry_after_s or self._retry.base_seconds * (0.5 + self._random.random() / 2)
        self._turns.pause(job, at_ns + round(wait_s * NS))
