"""What a request is asked at the door, before anybody looks who else is there; and what it takes with it.

Refusals for good come first (an identity that changed, attempts used up, too wide, too late, a budget that
is spent): whoever can never be served is not told to come back. Then those for now: too early, what running
calls may yet use of a budget, the tenant's own limit, a provider that is away. All is asked before anything
is taken, so that a refusal never uses up what it was refused for.
"""

from __future__ import annotations

from agentload.scheduler.attempts import GRACE_NS, AttemptBook, Tried
from agentload.scheduler.budgets import Budgets, Hold, Room
from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.deadlines import Deadlines
from agentload.scheduler.estimate import Estimator
from agentload.scheduler.events import Refused
from agentload.scheduler.reasons import Reason
from agentload.scheduler.refusals import Refusals
from agentload.scheduler.routes import Routes
from agentload.scheduler.tenant_limits import Quota, TenantLimit, tenant_limits
from agentload.scheduler.wall_clock import WallClock
from agentload.scheduler.work import UNIT, Request, WorkEstimate, WorkMeter, provider_tokens


class Stake:
    """What one request that was let in holds of its budgets and has used of its tenant's limit."""

    __slots__ = ("_hold", "_limit", "_tokens")

    def __init__(self, now_ns: int, tokens: int, hold: Hold | None, limit: TenantLimit | None) -> None:
        """`tokens`: as the provider counts them."""
        self._hold = hold
        self._limit = limit
        self._tokens = tokens
        if limit is not None:
            limit.take(now_ns, tokens)

    def used(self, now_ns: int, input_tokens: int, output_tokens: int, tokens: int) -> None:
        """It has used so much by now."""
        if self._hold is not None:
            self._hold.used(input_tokens, output_tokens)
        if self._limit is not None and tokens > self._tokens:
            self._limit.overrun(now_ns, tokens - self._tokens)
            self._tokens = tokens

    def settle(self, now_ns: int, input_tokens: int, output_tokens: int) -> None:
        """It was started and has ended, well or not."""
        if self._hold is not None:
            self._hold.settle(now_ns, input_tokens, output_tokens)

    def give_back(self) -> None:
        """It left before it was started."""
        if self._hold is not None:
            self._hold.give_back()
        if self._limit is not None:
            self._limit.give_back(self._tokens)


class Door:
    """The questions. What is not configured is not asked."""

    def __init__(
        self,
        config: GatewayConfig,
        meter: WorkMeter,
        estimator: Estimator,
        deadlines: Deadlines,
        routes: Routes,
        refusals: Refusals,
        book: AttemptBook,
        wall: WallClock,
    ) -> None:
        self._coefficients = config.estimation
        self._default_output_tokens = config.estimation.default_output_tokens
        self._meter = meter
        self._estimator = estimator
        self._deadlines = deadlines
        self._routes = routes
        self._refusals = refusals
        self._book = book
        self._limits = tenant_limits(config.tenants)
        self._budgets = Budgets(config, wall)
        self.counts = bool(self._limits) or self._budgets.configured
        """Whether anybody has a limit or a budget."""

    def refused(self, now_ns: int, request: Request, cls: ServiceClass) -> Refused | None:
        """Why it may not come in, or None. Changes nothing but what it says of its own attempts."""
        tried = None if request.idempotency_key is None else self._book.recall(request)
        if tried is not None or request.attempt:
            reason = self._used_up(request, tried)
            if reason is not None:
                return self._refusals.for_good(request, reason)
        if self.too_wide(request, cls):
            return self.refused_as_too_wide(request, cls)
        if request.deadline_ns is not None:
            reason = self._deadlines.too_late(now_ns, request, cls)
            if reason is not None:
                return self._refusals.for_good(request, reason)
        if self.counts or tried is not None or request.not_before_ns is not None:
            refused = self._not_now(now_ns, request, cls, tried)
            if refused is not None:
                return refused
        route = self._routes.of(request.model)
        paused = route.limits.paused_until_ns > now_ns and route.paused_until_ns > now_ns
        if paused and self._outlasted(now_ns, request, cls):
            return self._refusals.for_now(now_ns, request, Reason.PROVIDER_UNAVAILABLE, cls)
        return None

    def open_again(
        self, now_ns: int, request: Request, cls: ServiceClass, queued_ns: int, stake: Stake | None
    ) -> bool:
        """Whether one that came in then may wait for a second call. `stake`: what it still holds; None where
        the first call has used it, so that it needs as much again."""
        spent_ns = now_ns - queued_ns
        if spent_ns >= cls.max_wait_ns or self._outlasted(now_ns, request, cls, spent_ns):
            return False
        if self._deadlines.too_late(now_ns, request, cls) is not None:
            return False
        if stake is not None:
            return True
        limit = self._limits.get(request.tenant) if self._limits else None
        affords = limit is None or limit.admits(now_ns, provider_tokens(request))
        return affords and self._room(now_ns, request) is Room.ENOUGH

    def enter(self, now_ns: int, request: Request) -> Stake | None:
        """It comes in: take what it needs. None where nothing is counted."""
        limit = self._limits.get(request.tenant) if self._limits else None
        hold = None
        if self._budgets.configured:
            hold = self._budgets.reserve(request, self._most_output_tokens(request))
        if limit is None and hold is None:
            return None
        return Stake(now_ns, provider_tokens(request), hold, limit)

    def quotas(self, tenant: str) -> list[Quota]:
        """The tenant's own limits; none for most."""
        limit = self._limits.get(tenant) if self._limits else None
        return [] if limit is None else limit.quotas

    def too_wide(self, request: Request, cls: ServiceClass) -> bool:
        """By what it declares: what was learnt changes, and a refusal for good must not."""
        return (
            self._meter.work(request, request.input_tokens, self._declared(request)) > cls.widest
            or request.body_bytes > cls.max_bytes
            or provider_tokens(request) > self._routes.of(request.model).largest_call
        )

    def refused_as_too_wide(self, request: Request, cls: ServiceClass) -> Refused:
        """For good, and it is told what binds."""
        estimate = WorkEstimate(
            request.input_tokens,
            self._declared(request),
            request.tool_calls,
            request.tool_seconds,
            None,
            request.service_class,
        )
        if estimate.work_units(self._coefficients) * UNIT > cls.widest:
            parts = estimate.units_by_dimension(self._coefficients)
            named = ", ".join(f"{name} {units:.4g}" for name, units in parts.items() if units)
            most = f"at most {cls.widest / UNIT:.4g}"
            detail = f"{sum(parts.values()):.4g} work units ({named}), {most}"
        elif request.body_bytes > cls.max_bytes:
            detail = f"{request.body_bytes} bytes, at most {cls.max_bytes}"
        else:
            most = f"at most {self._routes.of(request.model).largest_call:.0f}"
            detail = f"{provider_tokens(request)} tokens as the provider counts them, {most}"
        return self._refusals.for_good(request, Reason.TOO_WIDE, detail)

    def _declared(self, request: Request) -> int:
        declared = request.max_output_tokens
        return self._default_output_tokens if declared is None else declared

    def _used_up(self, request: Request, tried: Tried | None) -> Reason | None:
        """Why it may not be tried once more."""
        if tried is not None and tried.service_class != request.service_class:
            return Reason.IDENTITY_CHANGED
        if request.attempt and self._book.exhausted(request):
            return Reason.ATTEMPTS_EXHAUSTED
        return None

    def _not_now(
        self, now_ns: int, request: Request, cls: ServiceClass, tried: Tried | None
    ) -> Refused | None:
        """What budgets, promises and limits say."""
        room = self._room(now_ns, request)
        if room is Room.SPENT:
            why = self._budgets.why_spent(now_ns, request, self._most_output_tokens(request))
            return self._refusals.for_good(request, Reason.BUDGET_SPENT, why)
        ready_ns = self._not_before_ns(request, tried)
        if ready_ns is not None and now_ns < ready_ns - GRACE_NS:
            return self._refusals.early(now_ns, request, ready_ns)
        if room is Room.RESERVED:
            return self._refusals.for_now(now_ns, request, Reason.BUDGET_RESERVED, cls)
        limit = self._limits.get(request.tenant) if self._limits else None
        if limit is not None and not limit.admits(now_ns, provider_tokens(request)):
            return self._refusals.over_limit(now_ns, request, limit)
        return None

    def _room(self, now_ns: int, request: Request) -> Room:
        if not self._budgets.configured:
            return Room.ENOUGH
        return self._budgets.room(now_ns, request, self._most_output_tokens(request))

    def _most_output_tokens(self, request: Request) -> int:
        """What it may produce: what it declared, else what its kind has produced, with a margin."""
        declared = request.max_output_tokens
        return self._estimator.output_tokens(request) if declared is None else declared

    def _not_before_ns(self, request: Request, tried: Tried | None) -> int | None:
        """The later of what it was told and what it wants itself."""
        told_ns = None if tried is None else tried.not_before_ns
        own_ns = request.not_before_ns
        if told_ns is None or own_ns is None:
            return own_ns if told_ns is None else told_ns
        return max(told_ns, own_ns)

    def _outlasted(self, now_ns: int, request: Request, cls: ServiceClass, spent_ns: int = 0) -> bool:
        """Whether the provider's pause lasts longer than the request, which has spent so long, can wait."""
        patience_ns = cls.max_wait_ns - spent_ns
        if request.deadline_ns is not None:
            patience_ns = min(patience_ns, request.deadline_ns - now_ns)
        return self._routes.of(request.model).paused_until_ns - now_ns > patience_ns
