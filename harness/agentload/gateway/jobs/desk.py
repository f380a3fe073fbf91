"""Who is told what about jobs: reads requests, keeps the bounds, remembers who waits for an answer. PURE."""

from __future__ import annotations

from random import Random

import msgspec

from agentload.gateway.answers import Answer, of_failure
from agentload.gateway.envelope import EnvelopeReader, Rejected
from agentload.gateway.failures import Failure
from agentload.gateway.headers import Headers
from agentload.gateway.jobs import views
from agentload.gateway.jobs.eta import Pace
from agentload.gateway.jobs.lanes import Lanes
from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.model import NS, JobSpec, JobState
from agentload.gateway.jobs.phase import Phase
from agentload.gateway.jobs.protocol import ChatPosted, JobPosted
from agentload.gateway.jobs.reader import JobReader
from agentload.gateway.jobs.registry import Registry
from agentload.gateway.jobs.views import Standing
from agentload.gateway.protocol import Respond
from agentload.scheduler.config import ClassConfig, GatewayConfig, WhenFull
from agentload.scheduler.jobs_config import JobsSettings
from agentload.scheduler.retry_after import RetryAdvice, VirtualQueue

_WAITING = (Phase.WAITING, Phase.ASKING)


class _Waiter(msgspec.Struct, frozen=True):
    request_id: int
    preferred: bool = False
    """It is a chat call that said `Prefer: respond-async`."""


class Desk:
    """Answers requests. It reads the others' state and changes none of it."""

    def __init__(
        self,
        config: GatewayConfig,
        settings: JobsSettings,
        who: EnvelopeReader,
        max_body_bytes: int,
        random: Random,
        registry: Registry,
        lanes: Lanes,
    ) -> None:
        self.reader = JobReader(who, settings, max_body_bytes)
        self.paces: dict[str, Pace] = {}
        self._settings = settings
        self._classes = {name: cls for pool in config.pools.values() for name, cls in pool.classes.items()}
        self._slots = {name: pool.slots for pool in config.pools.values() for name in pool.classes}
        self._retry = config.retry
        self._advice = RetryAdvice(config.retry, random)
        self._promises: dict[str, VirtualQueue] = {}
        self._registry = registry
        self._lanes = lanes
        self._accepting: dict[int, list[_Waiter]] = {}
        self._deleting: dict[int, list[int]] = {}

    # ----------------------------------------------------------------- coming in

    def read(self, event: JobPosted | ChatPosted) -> JobSpec | Answer:
        """What is asked for, or what is wrong with it."""
        try:
            if isinstance(event, ChatPosted):
                return self.reader.chat(event.headers, event.body)
            return self.reader.job(event.headers, event.body)
        except Rejected as rejected:
            return of_failure(rejected.failure, None)

    def refused(self, at_ns: int, spec: JobSpec) -> Answer | None:
        """Why it is not accepted; None when it is."""
        cls = self._classes.get(spec.service_class)
        if cls is None:
            message = f"no class {spec.service_class!r}"
            return of_failure(Rejected(400, "unknown_service_class", message).failure, None)
        if spec.tool_seconds > spec.deadline_s:
            return views.refusal(views.UNMEETABLE)
        failure = self._over_a_bound(spec, cls)
        if failure is None:
            return None
        return self.try_later(at_ns, failure, spec.service_class)

    def beyond(self, spec: JobSpec) -> bool:
        """Whether its class is full, but defers."""
        return self._lanes.waiting(spec.service_class) >= self._classes[spec.service_class].max_queue

    def try_later(self, at_ns: int, failure: Failure, service_class: str) -> Answer:
        """A refusal with its promise: the k-th who is refused is told when the k-th place is free."""
        queue = self._promises.setdefault(service_class, VirtualQueue())
        gap_ns = max(1, round(self.pace(service_class).gap_ns(at_ns, self._slots.get(service_class, 1))))
        due_ns = self._advice.place_ns(queue, at_ns, 0, gap_ns)
        return of_failure(failure, self._advice.seconds(at_ns, due_ns, 0))

    def _over_a_bound(self, spec: JobSpec, cls: ClassConfig) -> Failure | None:
        settings, registry, name = self._settings, self._registry, spec.service_class
        if registry.open_of(name, spec.tenant) >= settings.tenant_most:
            return views.TENANT_FULL
        if registry.open_of_class(name) >= settings.max_queued:
            return views.CLASS_FULL
        rejects = cls.response_when_full is WhenFull.REJECT
        if rejects and self._lanes.waiting(name) >= cls.max_queue:
            return views.CLASS_FULL
        if registry.bytes + spec.bytes > settings.max_bytes:
            return views.JOBS_FULL
        return None

    # ----------------------------------------------------------------- waiting for an answer

    def await_acceptance(self, number: int, request_id: int, *, preferred: bool) -> None:
        """Somebody is to be told when the job is safe."""
        self._accepting.setdefault(number, []).append(_Waiter(request_id, preferred))

    def await_end(self, number: int, request_id: int) -> None:
        """Somebody is to be told when the job's cancelling is safe."""
        self._deleting.setdefault(number, []).append(request_id)

    def accepted(self, at_ns: int, lifecycle: JobLifecycle) -> list[Respond]:
        """The job is safe."""
        waiters = self._accepting.pop(lifecycle.job.number, [])
        return [self.accept(at_ns, lifecycle, one.request_id, preferred=one.preferred) for one in waiters]

    def accept(self, at_ns: int, lifecycle: JobLifecycle, request_id: int, *, preferred: bool) -> Respond:
        """202."""
        standing = self.standing(at_ns, lifecycle)
        return respond(request_id, views.accepted(lifecycle.job, standing, preferred=preferred))

    def not_accepted(self, at_ns: int, lifecycle: JobLifecycle) -> list[Respond]:
        """The job could not be made safe."""
        waiters = self._accepting.pop(lifecycle.job.number, [])
        name = lifecycle.job.service_class
        return [respond(one.request_id, self.try_later(at_ns, views.STORE_DOWN, name)) for one in waiters]

    def ended(self, at_ns: int, lifecycle: JobLifecycle) -> list[Respond]:
        """The job has ended, and this is safe."""
        waiters = self._deleting.pop(lifecycle.job.number, [])
        return [self.show(at_ns, lifecycle, request_id) for request_id in waiters]

    def not_ended(self, at_ns: int, lifecycle: JobLifecycle) -> list[Respond]:
        """That the job has ended could not be made safe."""
        waiters = self._deleting.pop(lifecycle.job.number, [])
        name = lifecycle.job.service_class
        return [
            respond(request_id, self.try_later(at_ns, views.CANCEL_UNSAFE, name)) for request_id in waiters
        ]

    def lost(self, lifecycle: JobLifecycle) -> list[Respond]:
        """The job is another process's now, or never came to be."""
        number = lifecycle.job.number
        asked = [one.request_id for one in self._accepting.pop(number, [])]
        asked += self._deleting.pop(number, [])
        return [respond(request_id, views.refusal(views.UNKNOWN_JOB)) for request_id in asked]

    # ----------------------------------------------------------------- being asked

    def find(self, headers: Headers, job_id: str) -> JobLifecycle | Answer:
        """The job, if there is one and it is the caller's."""
        try:
            tenant = self.reader.tenant(headers)
        except Rejected as rejected:
            return of_failure(rejected.failure, None)
        lifecycle = self._registry.by_id.get(job_id)
        if lifecycle is None or lifecycle.job.tenant != tenant or lifecycle.phase is Phase.STORING:
            return views.refusal(views.UNKNOWN_JOB)
        return lifecycle

    def show(self, at_ns: int, lifecycle: JobLifecycle, request_id: int) -> Respond:
        """200 with everything."""
        return respond(request_id, views.shown(lifecycle.job, self.standing(at_ns, lifecycle)))

    # ----------------------------------------------------------------- where a job stands

    def pace(self, service_class: str) -> Pace:
        """How fast jobs of the class go."""
        return self.paces.setdefault(service_class, Pace())

    def standing(self, at_ns: int, lifecycle: JobLifecycle) -> Standing:
        """State, position and ETA."""
        job = lifecycle.job
        if job.state.ended:
            return Standing(job.state, None, None, 0)
        pace = self.pace(job.service_class)
        left_ns = pace.left_ns(job)
        if lifecycle.phase not in _WAITING:
            running = lifecycle.phase is Phase.RUNNING
            done_ns = at_ns - lifecycle.begun_ns if running else 0
            state = JobState.RUNNING if running else job.state
            return Standing(state, 0, max(0.0, left_ns - done_ns) / NS, 0)
        lane = self._lanes.of(job.service_class, job.tenant)
        parked_until_ns = max(job.not_before_ns, lane.paused_until_ns)
        position = self._lanes.position(lane, job.number)
        wait_ns = max(
            position * pace.gap_ns(at_ns, self._slots.get(job.service_class, 1)), parked_until_ns - at_ns
        )
        parked = lifecycle.beyond or parked_until_ns > at_ns
        state = JobState.DEFERRED if parked else JobState.QUEUED
        until_ns = parked_until_ns if parked_until_ns > at_ns else 0
        return Standing(state, position, (wait_ns + left_ns) / NS, until_ns)


def respond(request_id: int, answer: Answer) -> Respond:
    """Give that answer to whoever sent the request."""
    return Respond(request_id, answer.status, answer.headers, answer.body)
