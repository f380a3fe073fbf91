"""The whole scheduler behind one door: requests in, decisions out.

Told the time in every call and handed its random source, it reads no clock, waits for nothing and knows no
sockets; the gateway and the simulator drive the same object. After any other call, call `poll`, act on what
it returns, and call it again no later than `next_wakeup_ns`. Time must not run backwards.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.core import SchedulerCore
from agentload.scheduler.door import Door, Stake
from agentload.scheduler.events import Dispatched, Event, Expired, Refused
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.forecast import Forecast
from agentload.scheduler.pool import Reservation
from agentload.scheduler.reasons import Reason
from agentload.scheduler.refusals import Refusals
from agentload.scheduler.retry_after import RetryAdvice
from agentload.scheduler.snapshot import Snapshot, take_snapshot
from agentload.scheduler.tenant_limits import Quota
from agentload.scheduler.tenants import WAITING, TenantLane, Ticket
from agentload.scheduler.wall_clock import EPOCH_NS, WallClock
from agentload.scheduler.work import UNIT, Request, provider_tokens

__all__ = ["Admission", "Dispatched", "Event", "Expired", "Refused", "Request", "Reservation", "Snapshot"]


class Admission(SchedulerCore):
    """Admission, priority, fairness and retry, for one gateway.

    More classes that it is made of, which a subclass can replace.
    """

    advice: ClassVar[type[RetryAdvice]] = RetryAdvice
    door: ClassVar[type[Door]] = Door

    def __init__(
        self,
        config: GatewayConfig,
        random: Random,
        *,
        policy: type[FairQueue] | None = None,
        wall_offset_ns: int = EPOCH_NS,
    ) -> None:
        """`random` only jitters Retry-After. `policy` replaces the one that the configuration names.
        `wall_offset_ns`: Unix time when the clock that it is told is at 0; for windows of budgets.

        Raises UsageError when there is no policy of the configured name.
        """
        super().__init__(config, policy)
        config = self._config
        self._forecast = Forecast(list(self._classes.values()), self._routes)
        advice = self.advice(config.retry, random)
        self._refusals = Refusals(config.retry, advice, self._forecast, self._limits, self._book)
        self._door = self.door(
            config,
            self._meter,
            self._estimator,
            self._deadlines,
            self._routes,
            self._refusals,
            self._book,
            WallClock(wall_offset_ns),
        )
        self._counts = self._admits and self._door.counts
        self._draining = False

    # -- what others tell it

    def submit(self, now_ns: int, request: Request) -> None:
        """A request arrives: `poll` says whether it was dispatched or refused; until it does, it waits.

        Raises ValueError when a request of the same id is still waiting or running.
        """
        if request.id in self._tickets:
            raise ValueError(f"request id {request.id} is in use")
        self._counters.offered += 1
        refused = self._refused_at_sight(now_ns, request) or self._refused_a_place(now_ns, request)
        if refused is None:
            self._counters.admitted += 1
        else:
            self._counters.refused += 1
            by_reason = self._counters.refused_by
            by_reason[refused.reason] = by_reason.get(refused.reason, 0) + 1
            self._events.append(refused)

    def cancel(self, now_ns: int, request_id: int) -> None:
        """The caller left. A waiting request leaves at once; a running one's capacity is released, and its
        tenant is charged for the output reported so far. Does nothing for a request that has ended."""
        self._advanced_ns = None
        ticket = self._tickets.get(request_id)
        if ticket is None:
            return
        if ticket.state is WAITING:
            self._withdraw(ticket)
            self._book.unanswered(ticket.request, None)
        else:
            self._end_unanswered(now_ns, ticket, ticket.request.input_tokens, ticket.output_tokens)
        self._counters.cancelled += 1

    def progress(self, now_ns: int, request_id: int, output_tokens: int) -> None:
        """`output_tokens` have been produced so far, in all. Charges what exceeds the estimate and renews the
        lease; every 128 to 256 tokens is often enough. Does nothing for a request that is not running."""
        self._advanced_ns = None
        ticket = self._running(request_id)
        if ticket is None:
            return
        ticket.service_class.pool.leases.renew(request_id, now_ns)
        self._note_output(now_ns, ticket, output_tokens)
        request = ticket.request
        if ticket.stake is not None:
            ticket.stake.used(now_ns, request.input_tokens, ticket.output_tokens, ticket.provider_tokens)
        self._dispatcher.charge(ticket, self._meter.work(request, request.input_tokens, ticket.output_tokens))

    def complete(
        self, now_ns: int, request_id: int, *, input_tokens: int, output_tokens: int, ok: bool
    ) -> None:
        """The call ended: settle what it cost and release what it held. `ok`: it was answered whole.

        Does nothing for a request that is not running, so that nothing is ever released twice.
        """
        self._advanced_ns = None
        ticket = self._running(request_id)
        if ticket is None:
            return
        if not ok:
            self._end_unanswered(now_ns, ticket, input_tokens, output_tokens)
            self._counters.failed += 1
            return
        work = self._meter.tokens(input_tokens + output_tokens)
        self._note_output(now_ns, ticket, output_tokens)
        self._counters.note_estimate(ticket.estimated_output_tokens, output_tokens)
        self._estimator.served(now_ns, ticket.request, output_tokens, now_ns - ticket.started_ns)
        ticket.service_class.served(now_ns, ticket, work)
        self._end(now_ns, ticket, work, input_tokens, output_tokens)
        if ticket.request.idempotency_key is not None:
            self._book.answered(ticket.request)
        self._counters.completed += 1

    def provider_accepted(self, request_id: int) -> bool:
        """The provider began to answer the call; worth telling once per call. Whether that may let others
        start: fewer calls than there are slots were allowed, and now it is more."""
        ticket = self._running(request_id)
        if ticket is None or not ticket.limits.window.accepted(ticket.started_ns):
            return False
        self._advanced_ns = None
        return True

    def retry(self, now_ns: int, request_id: int, *, input_tokens: int, output_tokens: int) -> bool:
        """The call failed and could be made again: settle what it cost, release what it held, and let the
        request wait once more, at the end of its tenant's line, as old as it is. It may start at once.

        False when it must not wait: it is too late for it, there is no place, or nobody may come in any more.
        It has failed then. Also False for a request that is not running.
        """
        self._advanced_ns = None
        before = self._running(request_id)
        if before is None:
            return False
        request, cls, stake = before.request, before.service_class, before.stake
        if input_tokens or output_tokens:
            stake = None
        else:
            before.stake = None  # nothing of it was used
        self._fell_short(now_ns, before, input_tokens, output_tokens)
        may = not self._draining and self._door.open_again(now_ns, request, cls, before.queued_ns, stake)
        if may and self._waits_again(now_ns, before, stake):
            self._counters.retried += 1
            return True
        if stake is not None and not may:
            stake.give_back()
        self._book.unanswered(request, None)
        self._counters.failed += 1
        return False

    def provider_refused(
        self, now_ns: int, request_id: int, retry_after_ns: int | None, *, by_rate: bool = True
    ) -> None:
        """The provider would not take the call. Nothing is dispatched for `retry_after_ns`, and fewer calls
        at once afterwards; None: it did not say for how long. `by_rate`: it said 429, its tokens or requests
        per minute are used up. The call itself has yet to be ended with `complete` or `retry`."""
        self._advanced_ns = None
        self._counters.provider_refusals += 1
        ticket = self._running(request_id)
        if ticket is not None and self._admits:
            ticket.limits.refused(
                now_ns, ticket.started_ns, ticket.provider_tokens, retry_after_ns, by_rate=by_rate
            )

    def come_back_s(self, now_ns: int, request: Request, pause_ns: int | None) -> int:
        """Seconds after which one whose call has failed, and was ended, may come back: a ticket like those of
        the refused. `pause_ns`: how long the provider wants nothing; None where it has named no time."""
        cls = self._classes[request.service_class]
        return self._refusals.after_failure(now_ns, request, cls, pause_ns)

    def drain(self, now_ns: int) -> None:
        """Shutting down: newcomers are refused from now on; what waits is still served."""
        self._advance(now_ns)
        self._draining = True

    # -- what it answers

    def poll(self, now_ns: int) -> list[Event]:
        """Expires what is due, dispatches what may go, and returns all that happened since the last poll."""
        if self._advanced_ns != now_ns:
            self._advance(now_ns)
        events, self._events = self._events, []
        return events

    def next_wakeup_ns(self) -> int | None:
        """When something is due that no other call announces, as of the last poll (and later than it)."""
        due_ns, ready_ns = self._next_due_ns(), self._provider_ready_ns
        if ready_ns is not None and (due_ns is None or ready_ns < due_ns):
            return ready_ns
        return due_ns

    def snapshot(self, now_ns: int, *, tenants: int = 100) -> Snapshot:
        """Everything in numbers; of the tenants, those with most waiting and running, at most so many."""
        return take_snapshot(
            now_ns,
            self._dispatcher,
            self._counters,
            draining=self._draining,
            tenants=tenants,
            held_since_ns=self._held_since_ns,
            coefficients=self._config.estimation,
        )

    def expected_units(self, request: Request) -> float:
        """The work units that a request is taken for, by what it declares and what its kind has been like."""
        tokens = self._estimator.output_tokens(request)
        return self._meter.work(request, request.input_tokens, tokens) / UNIT

    def quotas(self, tenant: str) -> list[Quota]:
        """The tenant's own limits, for the fields that tell it of them."""
        return self._door.quotas(tenant)

    # -- may it come in

    def _refused_at_sight(self, now_ns: int, request: Request) -> Refused | None:
        """Refusals that do not depend on who else is there."""
        cls = self._classes.get(request.service_class)
        if cls is None:
            return self._refusals.for_good(request, Reason.UNKNOWN_CLASS)
        if self._draining:
            return self._refusals.shutting_down(now_ns, request)
        if self._admits:
            return self._door.refused(now_ns, request, cls)
        too_wide = self._door.too_wide(request, cls)
        return self._door.refused_as_too_wide(request, cls) if too_wide else None

    def _refused_a_place(self, now_ns: int, request: Request) -> Refused | None:
        """Starts it, lets it wait, or says why not."""
        cls = self._classes[request.service_class]
        lane = cls.lane(request.tenant, self._config.tenants.get(request.tenant))
        if lane is None:
            return self._refusals.for_now(now_ns, request, Reason.TOO_MANY_TENANTS, cls)
        ticket = self._ticket(now_ns, request, cls, lane)
        ticket.stake = self._door.enter(now_ns, request) if self._counts else None
        return self._enter(now_ns, ticket)

    def _enter(self, now_ns: int, ticket: Ticket) -> Refused | None:
        """Into its queue, and out again if it starts at once or may not wait."""
        self._tickets[ticket.request.id] = ticket
        self._dispatcher.enqueue(ticket)
        self._advanced_ns = None
        # The bounds are those of waiting: ask them only of a request that does not start at once.
        self._advance(now_ns)
        return self._refused_to_wait(now_ns, ticket) if ticket.state is WAITING else None

    def _waits_again(self, now_ns: int, before: Ticket, stake: Stake | None) -> bool:
        """Once more into the queue, unless it cannot wait for what it needs. `stake`: what it still holds."""
        request, cls = before.request, before.service_class
        lane = cls.lane(request.tenant, self._config.tenants.get(request.tenant))
        if lane is None:
            if stake is not None:
                stake.give_back()
            return False
        ticket = self._ticket(before.queued_ns, request, cls, lane)
        ticket.stake = stake if stake is not None or not self._counts else self._door.enter(now_ns, request)
        if self._enter(now_ns, ticket) is not None:
            return False
        if ticket.state is WAITING:
            cls.joined_again(ticket)
        return True

    def _ticket(self, queued_ns: int, request: Request, cls: ServiceClass, lane: TenantLane) -> Ticket:
        output_tokens = self._estimator.output_tokens(request)
        work = self._meter.work(request, request.input_tokens, output_tokens)
        return Ticket(
            request,
            cls,
            lane,
            output_tokens,
            work,
            provider_tokens(request),
            queued_ns,
            self._routes.of(request.model),
        )

    def _refused_to_wait(self, now_ns: int, ticket: Ticket) -> Refused | None:
        cls, request = ticket.service_class, ticket.request
        if cls.tenant_exceeds(ticket.lane):
            self._withdraw(ticket)
            return self._refusals.for_now(now_ns, request, Reason.TENANT_QUEUE_FULL, cls, lane=ticket.lane)
        wait_ns = self._forecast.wait_ns(now_ns, ticket)
        if request.deadline_ns is not None and self._deadlines.too_late(now_ns, request, cls, wait_ns):
            self._withdraw(ticket)
            return Refused(request, Reason.DEADLINE_UNMEETABLE, None, wait_ns)
        reason = Reason.PREDICTED_WAIT if wait_ns > cls.max_wait_ns else self._make_room(now_ns, ticket)
        if reason is not None:
            self._withdraw(ticket)
            return self._refusals.for_now(now_ns, request, reason, cls, predicted_wait_ns=wait_ns)
        self._set_alarm(now_ns, ticket)
        return None

    def _make_room(self, now_ns: int, newcomer: Ticket) -> Reason | None:
        """Evict whoever must go for the newcomer; the bound that is exceeded when nobody does."""
        cls = newcomer.service_class
        while (exceeded := cls.exceeded()) is not None:
            victims = cls.victims(newcomer, exceeded)
            if not victims:
                return exceeded
            for victim in victims:
                self._withdraw(victim)
                self._counters.evicted += 1
                self._events.append(self._refusals.for_now(now_ns, victim.request, Reason.EVICTED, cls))
        return None
