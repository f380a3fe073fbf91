"""All jobs of one gateway process: events in, actions out. PURE.

It sits beside a GatewayCore (see `front.py`, which carries what passes between the two): chat steps are
requests at the gateway's own admission, tool steps pass the `ToolGate`. Whatever one call of `handle` wants
saved is one batch, and the shell makes many batches one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import ClassVar, TypeAlias

from agentload.gateway.answers import Answer
from agentload.gateway.envelope import EnvelopeReader
from agentload.gateway.jobs import news, states, views
from agentload.gateway.jobs.batches import Batches
from agentload.gateway.jobs.calls import chat_envelope, declared_units, tool_call
from agentload.gateway.jobs.counters import Counters
from agentload.gateway.jobs.desk import Desk, respond
from agentload.gateway.jobs.ends import of_tool
from agentload.gateway.jobs.gate import ToolGate
from agentload.gateway.jobs.lanes import Lanes
from agentload.gateway.jobs.leases import Leases
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import NS, Job, JobSpec, JobState, StepEnd, Verdict
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.protocol import (
    CancelTool,
    ChatPosted,
    JobAction,
    JobAsked,
    JobDeleted,
    JobEnded,
    JobEvent,
    JobPosted,
    JobSubmitted,
    Recovered,
    Stored,
    StoreFailed,
    ToolAnswered,
    ToolFailed,
)
from agentload.gateway.jobs.registry import Registry
from agentload.gateway.jobs.store import Applied, Change, Delete, Fenced, Outcome, Renew
from agentload.gateway.jobs.turns import Turns
from agentload.gateway.jobs.underway import Underway
from agentload.gateway.jobs.wishes import AskAdmission, CallOff, LetGo, Wish
from agentload.gateway.protocol import Drain, Respond, Stop, Tick
from agentload.gateway.settings import GatewaySettings
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.jobs_config import JobsSettings
from agentload.scheduler.timers import Timers
from agentload.scheduler.wall_clock import EPOCH_NS

CoreAction: TypeAlias = JobAction | Respond | Wish
CoreEvent: TypeAlias = JobEvent | Tick | Drain | Stop


class JobsCore:
    """Every decision about jobs. Not thread-safe: one loop drives it.

    `lifecycle` and the methods with a safeguard in them can be replaced, to see what it is worth.
    """

    lifecycle: ClassVar[type[JobLifecycle]] = JobLifecycle

    def __init__(
        self,
        config: GatewayConfig,
        settings: JobsSettings,
        gateway: GatewaySettings,
        random: Random,
        keys: Mapping[str, str] | None = None,
        *,
        wall_offset_ns: int = EPOCH_NS,
    ) -> None:
        """`wall_offset_ns`: Unix time when the clock of `now_ns` is at 0. `keys`: secret key → tenant."""
        self.settings = settings
        self.counters = Counters()
        self.registry = Registry()
        self.lanes = Lanes()
        self.wall_offset_ns = wall_offset_ns
        """Add it to an instant to have Unix time."""
        self._random = random
        self._retry = config.retry
        self._estimation = config.estimation
        self._owner = f"{random.getrandbits(64):016x}"
        who = EnvelopeReader(config, gateway, keys or {})
        self._desk = Desk(config, settings, who, gateway.max_body_bytes, random, self.registry, self.lanes)
        self._gate = ToolGate(settings.tool_slots, settings.tool_tenant_most)
        self._draining = False
        self._batches = Batches()
        self._underway = Underway(self._gate)
        self._timers = Timers()
        self._turns = Turns(self.registry, self.lanes, self._gate, settings.ahead)
        self._leases = Leases(settings)
        self._out: list[CoreAction] = []
        """What one call of `handle` gathers."""

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

    @property
    def leased(self) -> Collection[JobLifecycle]:
        """Jobs with a step in service."""
        return self._leases.held

    @property
    def in_service(self) -> int:
        """Jobs that are leased or about to be, and batches that are being written."""
        return len(self._leases) + len(self._underway) + len(self._batches)

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

    def _make(self, job: Job, *, stored: bool) -> JobLifecycle:
        return self.lifecycle(job, self.settings, self._retry, self._random, owner=self._owner, stored=stored)

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

    def _prune(self, at_ns: int) -> None:
        settings = self.settings
        before_ns = at_ns - round(settings.retention_s * NS)
        while (stale := self.registry.pop_stale(before_ns, settings.max_kept)) is not None:
            self._batches.add(None, Delete(stale.job.id))

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

    # ----------------------------------------------------------------- before admission and the gate

    def _pause(self, at_ns: int, job: Job, end: StepEnd) -> None:
        """Admission will have none of this lane now: it asks again when it was told to, not before."""
        self.counters.parked += 1
        wait_s = end.retry_after_s or self._retry.base_seconds * (0.5 + self._random.random() / 2)
        self._turns.pause(job, at_ns + round(wait_s * NS))

    def _ask(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        job, chat = lifecycle.job, lifecycle.step.chat
        assert chat is not None
        self._tell(at_ns, lifecycle, news.Asked())
        expected = chat.input_tokens + (chat.max_output_tokens or 0)
        if job.max_total_tokens is not None and job.total_tokens + expected > job.max_total_tokens:
            message = f"{job.total_tokens} of {job.max_total_tokens} tokens are spent, {expected} needed"
            end = StepEnd(verdict=Verdict.REFUSED, reason=states.SPEND_LIMIT, message=message)
            self.counters.overspent += 1
            return self._tell(at_ns, lifecycle, news.Ended(end))
        request_id = self._underway.ask(job.number)
        envelope = chat_envelope(
            job,
            chat,
            request_id=request_id,
            key=self.step_key(job),
            now_ns=at_ns - self.wall_offset_ns,
            wall_offset_ns=self.wall_offset_ns,
        )
        return self._out.append(AskAdmission(request_id, envelope))

    def _take_slot(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        self._underway.hold_slot(lifecycle.job.number, lifecycle.job.tenant)
        self._tell(at_ns, lifecycle, news.Asked())
        self._tell(at_ns, lifecycle, news.Granted())

    # ----------------------------------------------------------------- deliveries

    def step_key(self, job: Job) -> str:
        """The idempotency key of the step that is next: the same at every delivery."""
        return f"{job.id}:{job.step}"

    def _begin(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        """The lease is safe."""
        job, tool = lifecycle.job, lifecycle.step.tool
        self.counters.begun += 1
        self._desk.pace(job.service_class).began(at_ns, backlog=self.lanes.waiting(job.service_class) > 0)
        if tool is None:
            request_id = self._underway.request_of(job.number)
            assert request_id is not None
            return self._out.append(LetGo(request_id))
        self.counters.tool_calls += 1
        call = tool_call(
            job,
            tool,
            call_id=self._underway.call(job.number),
            key=self.step_key(job),
            timeout_s=lifecycle.patience_s(at_ns),
            connect_s=self.settings.tool_connect_s,
        )
        return self._out.append(call)

    def _tool_ended(self, at_ns: int, call_id: int, end: StepEnd) -> None:
        lifecycle = self._of(call_id)
        if lifecycle is not None:
            self._underway.forget_call(lifecycle.job.number)
            self._tell(at_ns, lifecycle, news.Ended(end))

    def _abandon(self, number: int) -> None:
        """End what is under way for the job; its news is not listened to any more."""
        request_id = self._underway.forget_request(number)
        if request_id is not None:
            self._out.append(CallOff(request_id))
        call_id = self._underway.forget_call(number)
        if call_id is not None:
            self._out.append(CancelTool(call_id))

    def _of(self, some_id: int) -> JobLifecycle | None:
        """The job whose request or call that is, if anybody listens to it."""
        number = self._underway.job(some_id)
        return None if number is None else self.registry.by_number.get(number)

    # ----------------------------------------------------------------- telling lifecycles

    def _tell(self, at_ns: int, lifecycle: JobLifecycle, event: object) -> None:
        """Tell one job, keep the books of where it is, and do what it wants done."""
        before, failures = lifecycle.phase, lifecycle.job.failures
        effects = lifecycle.handle(at_ns, event)
        if lifecycle.job.failures > failures:
            self.counters.retried += not lifecycle.job.state.ended
            self.counters.reclaimed += lifecycle.job.reason in states.LOST_LEASES
        self._moved(at_ns, lifecycle, before)
        self._carry_out(at_ns, lifecycle, effects)

    def _moved(self, at_ns: int, lifecycle: JobLifecycle, before: Phase) -> None:
        after, job = lifecycle.phase, lifecycle.job
        if lifecycle.timer_ns is not None:
            self._timers.set(job.number, lifecycle.timer_ns)
        else:
            self._timers.cancel(job.number)
        if after is before:
            return
        self._turns.moved(lifecycle, before, after)
        if after is Phase.RUNNING:
            self._leases.take(at_ns, lifecycle)
        elif before is Phase.RUNNING:
            self._leases.give_up(job.number)
            if not job.state.ended and not lifecycle.asks_admission:
                self.counters.tool_ns += at_ns - lifecycle.begun_ns
        if after is Phase.ENDED:
            self._ended(at_ns, lifecycle)
        elif after is Phase.LOST:
            self.registry.drop(lifecycle)
            self._out.extend(self._desk.lost(lifecycle))

    def _ended(self, at_ns: int, lifecycle: JobLifecycle) -> None:
        job = lifecycle.job
        self.registry.end(lifecycle)
        name = job.state.value
        setattr(self.counters, name, getattr(self.counters, name) + 1)
        if job.state is JobState.COMPLETED:
            backlog = self.lanes.waiting(job.service_class) > 0
            self._desk.pace(job.service_class).ended(at_ns, backlog=backlog)
        self._out.extend(self._desk.ended(at_ns, lifecycle))
        self._out.append(JobEnded(job))
        self._prune(at_ns)

    def _carry_out(self, at_ns: int, lifecycle: JobLifecycle, effects: news.Effects) -> None:
        number = lifecycle.job.number
        for effect in effects:
            match effect:
                case news.Write():
                    self._batches.add(lifecycle, effect.change)
                case news.Begin():
                    self._begin(at_ns, lifecycle)
                case news.Abandon():
                    self._abandon(number)
                case news.Wait():
                    self._turns.ready(at_ns, lifecycle)

    def _finish(self, at_ns: int) -> list[CoreAction]:
        """Let go what may go; then everything that was gathered, and one batch for the store."""
        if not self._draining:
            for lifecycle in self._turns.tools(at_ns):
                self._take_slot(at_ns, lifecycle)
            for lifecycle in self._turns.chats(at_ns):
                self._ask(at_ns, lifecycle)
        batch = self._batches.close()
        if batch is not None:
            self._out.append(batch)
        out, self._out = self._out, []
        return out
