"""What a refused caller is told: of all constraints that were exhausted, the latest ready time."""

from __future__ import annotations

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import RetryConfig
from agentload.scheduler.events import Refused
from agentload.scheduler.forecast import Forecast
from agentload.scheduler.limits import NS, ProviderLimits
from agentload.scheduler.reasons import Reason
from agentload.scheduler.retry_after import RetryAdvice, VirtualQueue
from agentload.scheduler.scale_out import BOUNDS
from agentload.scheduler.tenants import TenantLane
from agentload.scheduler.work import Request


class Refusals:
    """Makes Refused events, and remembers what was promised."""

    def __init__(
        self, config: RetryConfig, advice: RetryAdvice, forecast: Forecast, limits: ProviderLimits
    ) -> None:
        self._restart_ns = round(config.base_seconds * NS)
        self._advice = advice
        self._forecast = forecast
        self._limits = limits

    def for_good(self, request: Request, reason: Reason) -> Refused:
        """No promise: the same request will not be served later either."""
        return Refused(request, reason, None, None)

    def shutting_down(self, now_ns: int, request: Request) -> Refused:
        """Another process will have to answer; all that can be said is how long that usually takes."""
        return self._promise(now_ns, request, Reason.SHUTTING_DOWN, now_ns + self._restart_ns, None)

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
        if not tenant_full or cls.full:
            excess_ns = max(0, (predicted_wait_ns or 0) - cls.max_wait_ns)
            due_ns = max(due_ns, self._place_in_class(now_ns + excess_ns, now_ns, cls))
        return self._promise(now_ns, request, reason, due_ns, predicted_wait_ns)

    def _place_in_lane(self, now_ns: int, cls: ServiceClass, lane: TenantLane) -> int:
        interval_ns = self._forecast.lane_interval_ns(cls, lane)
        if lane.promises is None:
            lane.promises = VirtualQueue()
        return self._advice.place_ns(lane.promises, now_ns, self._limits.paused_until_ns, interval_ns)

    def _place_in_class(self, free_from_ns: int, now_ns: int, cls: ServiceClass) -> int:
        free_from_ns = max(free_from_ns, self._limits.paused_until_ns)
        return self._advice.place_ns(cls.promises, now_ns, free_from_ns, self._forecast.interval_ns(cls))

    def _promise(
        self, now_ns: int, request: Request, reason: Reason, due_ns: int, predicted_wait_ns: int | None
    ) -> Refused:
        seconds = self._advice.seconds(now_ns, due_ns, request.attempt)
        return Refused(request, reason, seconds, predicted_wait_ns, due_ns)
