"""What a refused caller is told: of all constraints that were exhausted, the latest ready time."""

from __future__ import annotations

import math

from agentload.scheduler.attempts import AttemptBook
from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.events import Refused
from agentload.scheduler.forecast import Forecast
from agentload.scheduler.limits import NS, ProviderLimits
from agentload.scheduler.reasons import Reason
from agentload.scheduler.retry_after import RetryAdvice, VirtualQueue
from agentload.scheduler.scale_out import BOUNDS
from agentload.scheduler.tenant_limits import TenantLimit
from agentload.scheduler.tenants import TenantLane
from agentload.scheduler.work import Request, provider_tokens

_FULL = frozenset({Reason.CLASS_QUEUE_FULL, Reason.QUEUE_UNITS_FULL, Reason.QUEUE_BYTES_FULL})


class Refusals:
    """Makes Refused events, and remembers what was promised."""

    def __init__(
        self,
        config: RetryConfig,
        advice: RetryAdvice,
        forecast: Forecast,
        limits: ProviderLimits,
        book: AttemptBook,
    ) -> None:
        self._base_ns = round(config.base_seconds * NS)
        self._longest_s = int(config.max_seconds)
        self._advice = advice
        self._forecast = forecast
        self._limits = limits
        self._book = book

    def for_good(self, request: Request, reason: Reason, detail: str = "") -> Refused:
        """No promise: the same request will not be served later either."""
        return Refused(request, reason, None, None, detail=detail)

    def shutting_down(self, now_ns: int, request: Request) -> Refused:
        """Another process will have to answer; all that can be said is how long that usually takes."""
        return self._promise(now_ns, request, Reason.SHUTTING_DOWN, now_ns + self._base_ns, None)

    def early(self, now_ns: int, request: Request, ready_ns: int) -> Refused:
        """It has come too early: it is told again what it was told before, as far as that still lies ahead.

        It takes no new ticket, no attempt is counted, and the promise is not put off: a caller that comes too
        early twice gains and loses nothing.
        """
        left_s = max(1, min(math.ceil((ready_ns - now_ns) / NS), self._longest_s))
        return Refused(request, Reason.TOO_EARLY, left_s, None, ready_ns)

    def over_limit(self, now_ns: int, request: Request, limit: TenantLimit) -> Refused:
        """It may come back when its tenant's bucket holds enough for it and for those told so before it."""
        due_ns = limit.place_ns(self._advice, now_ns, provider_tokens(request))
        return self._promise(now_ns, request, Reason.TENANT_OVER_LIMIT, due_ns, None)

    def after_failure(self, now_ns: int, request: Request, cls: ServiceClass, pause_ns: int | None) -> int:
        """Seconds for one whose call has failed: a place in its class once the provider's pause is over, or
        the usual base where it named none. Those that failed together are thus told different instants."""
        free_ns = now_ns + (self._base_ns if pause_ns is None else pause_ns)
        due_ns = self._place_in_class(free_ns, now_ns, cls)
        seconds = self._seconds(now_ns, request, due_ns)
        self._book.promised(request, now_ns + seconds * NS)
        return seconds

    def for_now(
        self,
        now_ns: int,
        request: Request,
        reason: Reason,
        cls: ServiceClass,
        *,
        lane: TenantLane | None = None,
        predicted_wait_ns: int | None = None,
    ) -> Refused:
        """It may come back when there is a place: in its class's queue or, when its tenant's lane was full,
        in that; where both are full, the later of the two counts."""
        if reason in BOUNDS and (lane is None or not lane.blocked):
            cls.pool.scale_out.refused(now_ns, cls, self._limits)
        due_ns = 0
        tenant_full = reason is Reason.TENANT_QUEUE_FULL and lane is not None
        if lane is not None and tenant_full:
            due_ns = self._place_in_lane(now_ns, cls, lane)
        if cls.defers and reason in _FULL:
            reason = Reason.DEFERRED_CLASS_FULL
        if not tenant_full or cls.full:
            excess_ns = max(0, (predicted_wait_ns or 0) - cls.max_wait_ns)
            due_ns = max(due_ns, self._place_in_class(now_ns + excess_ns, now_ns, cls))
        return self._promise(now_ns, request, reason, due_ns, predicted_wait_ns)

    def _place_in_lane(self, now_ns: int, cls: ServiceClass, lane: TenantLane) -> int:
        interval_ns = self._forecast.lane_interval_ns(cls, lane)
        if lane.promises is None:
            lane.promises = VirtualQueue()
        return self._advice.place_ns(lane.promises, now_ns, self._forecast.back_ns(now_ns, cls), interval_ns)

    def _place_in_class(self, free_from_ns: int, now_ns: int, cls: ServiceClass) -> int:
        free_from_ns = max(free_from_ns, self._forecast.back_ns(now_ns, cls))
        return self._advice.place_ns(cls.promises, now_ns, free_from_ns, self._forecast.interval_ns(cls))

    def _promise(
        self, now_ns: int, request: Request, reason: Reason, due_ns: int, predicted_wait_ns: int | None
    ) -> Refused:
        seconds = self._seconds(now_ns, request, due_ns)
        self._book.unanswered(request, now_ns + seconds * NS)
        return Refused(request, reason, seconds, predicted_wait_ns, due_ns)

    def _seconds(self, now_ns: int, request: Request, due_ns: int) -> int:
        """The floor by attempt is for those who may have come at any time; whoever is known to have waited
        as told is told no more than is true."""
        attempt = 0 if self._book.came_as_told(now_ns, request) else request.attempt
        return self._advice.seconds(now_ns, due_ns, attempt)
