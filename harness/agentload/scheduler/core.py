"""What waits and what runs: in and out of the queues, in and out of service, and what is due at an instant.

`Admission` is the door to it: it decides who comes in, and is what others call.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from agentload.scheduler.attempts import AttemptBook
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.congestion import UNLIMITED
from agentload.scheduler.deadlines import Deadlines
from agentload.scheduler.diagnosis import Diagnosis
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.estimate import Estimator
from agentload.scheduler.events import Dispatched, Event, Expired
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.model_round import ModelRound
from agentload.scheduler.policies import SEAM as POLICIES
from agentload.scheduler.pool import Reservation
from agentload.scheduler.reasons import Reason
from agentload.scheduler.snapshot import Counters
from agentload.scheduler.tenants import RUNNING, Ticket
from agentload.scheduler.timers import Timers
from agentload.scheduler.unlimited import without_admission
from agentload.scheduler.work import UNIT, WorkMeter


class SchedulerCore:
    """The queues and the pools at work. Told the time in every call, which must not run backwards.

    The classes that it is made of are named here, so that a subclass can replace one of them.
    """

    estimator: ClassVar[type[Estimator]] = Estimator
    dispatcher: ClassVar[type[Dispatcher]] = Dispatcher
    deadlines: ClassVar[type[Deadlines]] = Deadlines
    attempts: ClassVar[type[AttemptBook]] = AttemptBook

    def __init__(self, config: GatewayConfig, policy: type[FairQueue] | None) -> None:
        """`policy` replaces the one that the configuration names.

        Raises UsageError when there is no policy of the configured name.
        """
        policy = policy or POLICIES.get(config.policy)
        self._admits = policy.admits
        if not policy.admits:
            config = without_admission(config)
        self._config = config
        self._meter = WorkMeter(config.estimation)
        self._estimator = self.estimator(config.estimation, config.max_tenants)
        self._dispatcher = self.dispatcher(config, policy)
        self._classes = self._dispatcher.classes
        self._limits = self._dispatcher.limits
        self._routes = self._dispatcher.routes
        self._deadlines = self.deadlines(self._estimator, enforced=policy.admits)
        self._book = self.attempts(config.retry)
        self._counters = Counters()
        self._events: list[Event] = []
        self._tickets: dict[int, Ticket] = {}
        """All that waits or runs, by request id."""
        self.diagnosis = Diagnosis(self._dispatcher, self._tickets)
        """Says why a request waited or was refused, when asked."""
        self._timers = Timers()
        """By request id: when a waiting one must leave."""
        self._quiet_until_ns: float = 0
        """Neither an alarm nor a lease is due before then."""
        self._provider_ready_ns: int | None = None
        """When the provider's limits let the next one go, if that is what it waits for."""
        self._held_since_ns: int | None = None
        """Since when it has been waiting for that."""
        self._advanced_ns: int | None = None
        """The instant for which everything has been done; None when something changed since."""

    # -- in and out of service

    def _advance(self, now_ns: int) -> None:
        """Do all that is due at this instant: expire, take back, dispatch."""
        if self._advanced_ns == now_ns:
            return
        if now_ns >= self._quiet_until_ns:
            self._expire_due(now_ns)
        self._dispatch(now_ns)
        self._advanced_ns = now_ns

    def _expire_due(self, now_ns: int) -> None:
        while (request_id := self._timers.pop_due(now_ns)) is not None:
            self._alarm(now_ns, self._tickets[request_id])
        for pool in self._dispatcher.pools:
            while (request_id := pool.leases.lapsed(now_ns)) is not None:
                self._give_up(now_ns, self._tickets[request_id])
        due_ns = self._next_due_ns()
        self._quiet_until_ns = inf if due_ns is None else due_ns

    def _next_due_ns(self) -> int | None:
        """When the next alarm or lease is due."""
        due_ns = self._timers.next_ns()
        for pool in self._dispatcher.pools:
            lapse_ns = pool.leases.next_ns()
            if lapse_ns is not None and (due_ns is None or lapse_ns < due_ns):
                due_ns = lapse_ns
        return due_ns

    def _dispatch(self, now_ns: int) -> None:
        if self._routes.several:
            self._dispatch_by_model(now_ns)
            return
        self._provider_ready_ns = None
        held_since_ns, self._held_since_ns = self._held_since_ns, None
        window = self._limits.window
        while (ticket := self._dispatcher.next(now_ns)) is not None:
            if ticket.request.deadline_ns is not None:
                late = self._deadlines.too_late(now_ns, ticket.request, ticket.service_class)
                if late is not None:
                    self._expire(ticket, late)
                    continue
            ready_ns = self._limits.ready_ns(ticket.provider_tokens)
            if ready_ns > now_ns:
                self._provider_ready_ns = ready_ns
                self._held_since_ns = now_ns if held_since_ns is None else held_since_ns
                return
            if window.limit != UNLIMITED and window.full():
                return
            self._start(now_ns, ticket)
            held_since_ns = None

    def _dispatch_by_model(self, now_ns: int) -> None:
        look = ModelRound(now_ns)
        while (ticket := self._dispatcher.next(now_ns)) is not None:
            try:
                chosen = look.choose(ticket)
            except StopIteration:
                break
            if chosen is None:
                continue
            late = self._deadlines.too_late(now_ns, chosen.request, chosen.service_class)
            if late is None:
                self._start(now_ns, chosen)
            else:
                self._expire(chosen, late)
        look.end()
        self._provider_ready_ns = look.wakeup_ns

    def _start(self, now_ns: int, ticket: Ticket) -> None:
        request = ticket.request
        self._dispatcher.start(now_ns, ticket)
        self._counters.dispatched += 1
        self._timers.cancel(request.id)
        expires_ns = ticket.service_class.pool.leases.renew(request.id, now_ns)
        if expires_ns < self._quiet_until_ns:
            self._quiet_until_ns = expires_ns
        reservation = Reservation(
            self._counters.dispatched,
            request.id,
            request.tenant,
            request.service_class,
            ticket.estimate(now_ns),
            ticket.width / UNIT,
            ticket.provider_tokens,
            now_ns,
            expires_ns,
            ticket.fallback_model,
        )
        self._events.append(Dispatched(request, reservation, now_ns - ticket.queued_ns))

    def _set_alarm(self, now_ns: int, ticket: Ticket) -> None:
        """Look at the waiting ticket again when its time may be up."""
        leave_ns = self._deadlines.leave_ns(now_ns, ticket)
        self._timers.set(ticket.request.id, leave_ns)
        if leave_ns < self._quiet_until_ns:
            self._quiet_until_ns = leave_ns

    def _alarm(self, now_ns: int, ticket: Ticket) -> None:
        """A waiting ticket's time may be up; it is not when service has become faster since it was set."""
        reason = self._deadlines.too_late(now_ns, ticket.request, ticket.service_class)
        if reason is None and now_ns - ticket.queued_ns >= ticket.service_class.max_wait_ns:
            reason = Reason.MAX_WAIT
        if reason is None:
            self._set_alarm(now_ns, ticket)
        else:
            self._expire(ticket, reason)

    def _give_up(self, now_ns: int, ticket: Ticket) -> None:
        """A running ticket's holder has been silent for a whole lease."""
        self._end_unanswered(now_ns, ticket, ticket.request.input_tokens, ticket.output_tokens)
        self._counters.failed += 1
        self._events.append(Expired(ticket.request, Reason.LEASE_EXPIRED))

    def _expire(self, ticket: Ticket, reason: Reason) -> None:
        self._withdraw(ticket)
        self._book.unanswered(ticket.request, None)
        self._counters.expired += 1
        self._events.append(Expired(ticket.request, reason))

    def _withdraw(self, ticket: Ticket) -> None:
        self._advanced_ns = None
        self._dispatcher.withdraw(ticket)
        if ticket.stake is not None:
            ticket.stake.give_back()
        self._timers.cancel(ticket.request.id)
        del self._tickets[ticket.request.id]

    def _end(self, now_ns: int, ticket: Ticket, work: int, input_tokens: int, output_tokens: int) -> None:
        if ticket.stake is not None:
            ticket.stake.used(now_ns, input_tokens, output_tokens, ticket.provider_tokens)
            ticket.stake.settle(now_ns, input_tokens, output_tokens)
        self._dispatcher.finish(ticket, work)
        ticket.service_class.pool.leases.end(ticket.request.id)
        del self._tickets[ticket.request.id]

    def _end_unanswered(self, now_ns: int, ticket: Ticket, input_tokens: int, output_tokens: int) -> None:
        """No answer, and no further call."""
        self._fell_short(now_ns, ticket, input_tokens, output_tokens)
        self._book.unanswered(ticket.request, None)

    def _fell_short(self, now_ns: int, ticket: Ticket, input_tokens: int, output_tokens: int) -> None:
        """It cost the tokens it used."""
        self._note_output(now_ns, ticket, output_tokens)
        self._estimator.lasted(now_ns, ticket.request, now_ns - ticket.started_ns)
        self._end(
            now_ns, ticket, self._meter.tokens(input_tokens + output_tokens), input_tokens, output_tokens
        )

    def _running(self, request_id: int) -> Ticket | None:
        ticket = self._tickets.get(request_id)
        return None if ticket is None or ticket.state is not RUNNING else ticket

    # -- time and tokens

    def _note_output(self, now_ns: int, ticket: Ticket, output_tokens: int) -> None:
        """Output beyond what the provider charged at the start (nobody sent max_tokens) is charged now."""
        if output_tokens > ticket.output_tokens:
            ticket.output_tokens = output_tokens
        overrun = ticket.output_tokens - ticket.provider_tokens
        if overrun > 0:
            ticket.provider_tokens += overrun
            ticket.limits.overrun(now_ns, overrun)
