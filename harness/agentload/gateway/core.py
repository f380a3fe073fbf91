"""The gateway without its sockets: one scheduler, and one lifecycle for each open request. PURE.

`handle(now_ns, event)` returns what is to be done, in order; `next_wakeup_ns()` says when to send a `Tick`
at the latest. The asyncio shell and the simulator drive this very object, so that what is simulated is what
runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec

from agentload.gateway import answers, failures
from agentload.gateway.answers import Answer
from agentload.gateway.books import Books
from agentload.gateway.comeback import Comeback
from agentload.gateway.envelope import Envelope, EnvelopeReader, Rejected
from agentload.gateway.failures import Failure
from agentload.gateway.lifecycle import RequestLifecycle
from agentload.gateway.prices import price_of
from agentload.gateway.protocol import (
    Action,
    Arrived,
    Drain,
    Event,
    ForwardHeaders,
    NotRetried,
    Progress,
    ProviderAccepted,
    ProviderRefused,
    Record,
    Respond,
    Retry,
    Settle,
    Stop,
    Submitted,
    Tick,
    TimedOut,
    Withdraw,
)
from agentload.gateway.rate_limit_fields import rate_limit_fields
from agentload.gateway.readiness import Readiness
from agentload.gateway.retry_budget import RetryBudget
from agentload.gateway.settings import GatewaySettings
from agentload.gateway.tenant_labels import TenantLabels
from agentload.model import NS, Outcome
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.events import Dispatched
from agentload.scheduler.events import Event as Decision
from agentload.scheduler.timers import Timers
from agentload.scheduler.wall_clock import EPOCH_NS, WallClock

UNKNOWN = "unknown"
"""Tenant and class of a request that could not be read."""


class GatewayCore:
    """Every decision of the gateway. Not thread-safe: one loop drives it."""

    def __init__(
        self,
        config: GatewayConfig,
        settings: GatewaySettings,
        random: Random,
        keys: Mapping[str, str] | None = None,
        *,
        admission: Admission | None = None,
        lifecycle: type[RequestLifecycle] = RequestLifecycle,
        wall_offset_ns: int = EPOCH_NS,
    ) -> None:
        """`keys`: secret bearer key → tenant name (see `Identities`). `wall_offset_ns`: Unix time when the
        clock that it is told is at 0 (which an `admission` handed in must have been told, too).

        `admission` and `lifecycle` replace the reference's own, to see what one safeguard is worth.
        """
        self.settings = settings
        self._wall = WallClock(wall_offset_ns)
        if admission is None:
            admission = Admission(config, random, wall_offset_ns=wall_offset_ns)
        self.admission = admission
        self._lifecycle = lifecycle
        self.books = Books(
            TenantLabels(config.tenants, settings.tenant_labels),
            [name for pool in config.pools.values() for name in pool.classes],
            price_of(config),
        )
        """What has become of all requests, in numbers."""
        self._slow_ns = round(settings.slow_wait_s * NS)
        self._comeback = Comeback(admission, config.retry, random, self._wall)
        self._limited = any(tenant.is_limited for tenant in config.tenants.values())
        """Whether any tenant has limits to be told of."""
        self.readiness = Readiness(round(settings.readiness_window_s * NS))
        self._retry_config = config.retry
        self._random = random
        self.retry_budget = RetryBudget(settings.upstream_retries)
        self._reader = EnvelopeReader(config, settings, keys or {}, self._wall)
        self._open: dict[int, RequestLifecycle] = {}
        self._timers = Timers()

    @property
    def open_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def handle(self, now_ns: int, event: Event) -> list[Action]:
        """Take one event; everything that is to be done now, for this request and for others, in order."""
        actions: list[Action] = []
        match event:
            case Arrived():
                self._arrived(now_ns, event, actions)
            case Submitted():
                self._submit(now_ns, event.envelope, actions)
            case Tick():
                self._tick(now_ns, actions)
            case Drain():
                self.readiness.draining = True
                self.admission.drain(now_ns)
                self._dispatch(now_ns, actions)
            case Stop():
                for still_open in list(self._open.values()):
                    self._apply(now_ns, still_open, event, actions)
            case _:
                lifecycle = self._open.get(event.request_id)
                if lifecycle is not None and self._apply(now_ns, lifecycle, event, actions):
                    self._dispatch(now_ns, actions)
        return actions

    def next_wakeup_ns(self) -> int | None:
        """When to send a Tick at the latest; None when only another event can change anything."""
        timer, wakeup = self._timers.next_ns(), self.admission.next_wakeup_ns()
        if timer is None or wakeup is None:
            return wakeup if timer is None else timer
        return min(timer, wakeup)

    def ailment(self) -> str | None:
        """Why whoever watches this process should start it anew, in words; None: it is alive.

        It is while it answers. Load is no reason, whatever waits: readiness and refusals speak of that.
        """
        return None

    def answer_to(self, failure: Failure) -> Answer:
        """The answer to a call that passes no admission (GET /v1/models) and has failed."""
        return answers.of_failure(
            failure, failures.retry_after_s(failure, None, self._retry_config, self._random)
        )

    # ----------------------------------------------------------------- what comes in

    def _arrived(self, now_ns: int, event: Arrived, actions: list[Action]) -> None:
        try:
            envelope = self._reader.read(now_ns, event.request_id, event.headers, event.body, event.dialect)
        except Rejected as rejected:
            answer = answers.of_failure(rejected.failure, None, dialect=event.dialect)
            actions.append(Respond(event.request_id, answer.status, answer.headers, answer.body))
            record = _rejection(event.request_id, rejected.failure)
            self.books.enter(record)
            actions.append(record)
        else:
            self._submit(now_ns, envelope, actions)

    def _submit(self, now_ns: int, envelope: Envelope, actions: list[Action]) -> None:
        request = envelope.request
        lifecycle = self._lifecycle(
            envelope, self.settings, self._retry_config, self._random, self.retry_budget
        )
        lifecycle.comeback = self._comeback
        self._open[request.id] = lifecycle
        self.admission.submit(now_ns, request)
        self._dispatch(now_ns, actions)

    def _tick(self, now_ns: int, actions: list[Action]) -> None:
        while (request_id := self._timers.pop_due(now_ns)) is not None:
            lifecycle = self._open.get(request_id)
            if lifecycle is not None:
                self._apply(now_ns, lifecycle, TimedOut(request_id), actions)
        self._dispatch(now_ns, actions)

    # ----------------------------------------------------------------- what follows

    def _dispatch(self, now_ns: int, actions: list[Action]) -> None:
        """Let the scheduler start, refuse and expire what it can, until it has no more to say."""
        freed = True
        while freed:
            freed = False
            for event in self.admission.poll(now_ns):
                lifecycle = self._open.get(event.request.id)
                if lifecycle is not None:
                    self._explain(now_ns, lifecycle, event)
                    freed |= self._apply(now_ns, lifecycle, event, actions)

    def _explain(self, now_ns: int, lifecycle: RequestLifecycle, event: Decision) -> None:
        """Tell a request that has waited long, or is refused, why."""
        if isinstance(event, Dispatched) and event.waited_ns < self._slow_ns:
            return
        lifecycle.wait_cause = self.admission.diagnosis.cause(now_ns, event) or ""

    def _apply(self, now_ns: int, lifecycle: RequestLifecycle, event: object, actions: list[Action]) -> bool:
        """Tell a lifecycle, and do what it asks of the scheduler. True when that may let others start."""
        freed = False
        request_id = lifecycle.request.id
        for item in lifecycle.handle(now_ns, event):
            match item:
                case Settle():
                    self.admission.complete(
                        now_ns,
                        request_id,
                        input_tokens=item.input_tokens,
                        output_tokens=item.output_tokens,
                        ok=item.ok,
                    )
                    freed = True
                case ProviderAccepted():
                    freed |= self.admission.provider_accepted(request_id)
                case ProviderRefused():
                    self.admission.provider_refused(
                        now_ns, request_id, item.retry_after_ns, by_rate=item.by_rate
                    )
                case Retry():
                    self._retry(now_ns, lifecycle, item, actions)
                    freed = True
                case Withdraw():
                    self.admission.cancel(now_ns, request_id)
                    freed = True
                case Progress():
                    self.admission.progress(now_ns, request_id, item.output_tokens)
                case Record():
                    self._close(now_ns, item)
                    actions.append(item)
                case Respond() | ForwardHeaders() if self._limited:
                    actions.append(self._with_limits(now_ns, lifecycle.request.tenant, item))
                case _:
                    actions.append(item)
        if lifecycle.timer_ns is not None:
            self._timers.set(request_id, lifecycle.timer_ns)
        return freed

    def _with_limits(
        self, now_ns: int, tenant: str, answer: Respond | ForwardHeaders
    ) -> Respond | ForwardHeaders:
        """The answer, and what its tenant's own limits are like by now."""
        quotas = self.admission.quotas(tenant)
        if not quotas:
            return answer
        return msgspec.structs.replace(answer, headers=(*answer.headers, *rate_limit_fields(now_ns, quotas)))

    def _retry(self, now_ns: int, lifecycle: RequestLifecycle, retry: Retry, actions: list[Action]) -> None:
        """Let it wait again, or say that it may not."""
        request_id = retry.request_id
        self._timers.cancel(request_id)
        waits = self.admission.retry(
            now_ns, request_id, input_tokens=retry.input_tokens, output_tokens=retry.output_tokens
        )
        if not waits:
            self._apply(now_ns, lifecycle, NotRetried(request_id), actions)

    def _close(self, now_ns: int, record: Record) -> None:
        del self._open[record.request_id]
        self._timers.cancel(record.request_id)
        self.books.enter(record)
        if record.outcome is Outcome.ANSWERED:
            self.admission.diagnosis.served(now_ns, record.model, record.output_tokens, record.upstream_ns)
        if record.dispatched:
            self.readiness.observe(now_ns, failed=record.upstream_failed)


def _rejection(request_id: int, failure: Failure) -> Record:
    """The record of a request that never reached the scheduler."""
    return Record(
        request_id,
        tenant=UNKNOWN,
        service_class=UNKNOWN,
        workflow=UNKNOWN,
        attempt=0,
        stream=False,
        outcome=failure.outcome,
        status=failure.status,
        reason=failure.reason,
        waited_ns=0,
        upstream_ns=0,
        estimated_input_tokens=0,
        estimated_output_tokens=0,
        reserved_units=0.0,
        input_tokens=0,
        output_tokens=0,
        dispatched=False,
        upstream_attempts=0,
        waiting=False,
        upstream_failed=False,
        offered=False,
        admitted=False,
    )
