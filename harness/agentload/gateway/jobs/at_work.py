"""Jobs at work: told what happens to them, and what they then want is carried out. PURE.

Whatever one event leads to is gathered; `_finish` lets go what may go, and hands over all of it, what is to
be saved as one batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import ClassVar, TypeAlias

from agentload.gateway.envelope import EnvelopeReader
from agentload.gateway.jobs import news, states
from agentload.gateway.jobs.batches import Batches
from agentload.gateway.jobs.calls import chat_envelope, tool_call
from agentload.gateway.jobs.counters import Counters
from agentload.gateway.jobs.desk import Desk
from agentload.gateway.jobs.gate import ToolGate
from agentload.gateway.jobs.lanes import Lanes
from agentload.gateway.jobs.leases import Leases
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import NS, Job, JobState, StepEnd, Verdict
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.protocol import CancelTool, JobAction, JobEnded
from agentload.gateway.jobs.registry import Registry
from agentload.gateway.jobs.store import Delete
from agentload.gateway.jobs.turns import Turns
from agentload.gateway.jobs.underway import Underway
from agentload.gateway.jobs.wishes import AskAdmission, CallOff, LetGo, Wish
from agentload.gateway.protocol import Respond
from agentload.gateway.settings import GatewaySettings
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.jobs_config import JobsSettings
from agentload.scheduler.timers import Timers
from agentload.scheduler.wall_clock import EPOCH_NS

CoreAction: TypeAlias = JobAction | Respond | Wish


class JobsAtWork:
    """The jobs of one gateway process, and the books of where each of them is.

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

    @property
    def leased(self) -> Collection[JobLifecycle]:
        """Jobs with a step in service."""
        return self._leases.held

    @property
    def in_service(self) -> int:
        """Jobs that are leased or about to be, and batches that are being written."""
        return len(self._leases) + len(self._underway) + len(self._batches)

    def step_key(self, job: Job) -> str:
        """The idempotency key of the step that is next: the same at every delivery."""
        return f"{job.id}:{job.step}"

    # ----------------------------------------------------------------- telling lifecycles

    def _make(self, job: Job, *, stored: bool) -> JobLifecycle:
        return self.lifecycle(job, self.settings, self._retry, self._random, owner=self._owner, stored=stored)

    def _of(self, some_id: int) -> JobLifecycle | None:
        """The job whose request or call that is, if anybody listens to it."""
        number = self._underway.job(some_id)
        return None if number is None else self.registry.by_number.get(number)

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

    def _prune(self, at_ns: int) -> None:
        settings = self.settings
        before_ns = at_ns - round(settings.retention_s * NS)
        while (stale := self.registry.pop_stale(before_ns, settings.max_kept)) is not None:
            self._batches.add(None, Delete(stale.job.id))

    # ----------------------------------------------------------------- what they want

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

    def _abandon(self, number: int) -> None:
        """End what is under way for the job; its news is not listened to any more."""
        request_id = self._underway.forget_request(number)
        if request_id is not None:
            self._out.append(CallOff(request_id))
        call_id = self._underway.forget_call(number)
        if call_id is not None:
            self._out.append(CancelTool(call_id))

    # ----------------------------------------------------------------- before admission and the gate

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
