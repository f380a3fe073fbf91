"""A new window, a new allowance."""

from __future__ import annotations

from typing import Any, ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.admission import Admission
from agentload.scheduler.config import TenantConfig
from agentload.scheduler.door import Door
from agentload.scheduler.retry_after import RetryAdvice
from agentload.scheduler.tenant_limits import TenantLimit

NS = 1_000_000_000


class LimitsInFixedWindows(Mutant):
    """Requests of a tenant are counted in windows of `burst_s`, and the counter goes back to 0 at each edge.

    Whoever comes just before an edge and just after it gets twice the burst at once (`int(now // 60)`).
    """

    row = "L11"
    breaks = "a tenant gets twice its burst around the edge of a window"
    killed_by = "tenant-limit"
    profile = "limit-edges"

    def parts(self) -> Parts:
        return Parts(admission=_Counting)


class _Windowed(TenantLimit):
    __slots__ = ("_counted", "_most", "_window", "_window_ns")

    def __init__(self, config: TenantConfig) -> None:
        super().__init__(config)
        self._window_ns = round(config.burst_s * NS)
        self._most = (config.requests_per_minute or 1e12) / 60 * config.burst_s
        self._window = self._counted = 0

    def admits(self, now_ns: int, tokens: int) -> bool:
        if self.requests is None:
            return super().admits(now_ns, tokens)
        window = now_ns // self._window_ns
        if window != self._window:
            self._window, self._counted = window, 0
        return self._counted < self._most

    def place_ns(self, advice: RetryAdvice, now_ns: int, tokens: int) -> int:
        if self.requests is None:
            return super().place_ns(advice, now_ns, tokens)
        return (now_ns // self._window_ns + 1) * self._window_ns

    def take(self, now_ns: int, tokens: int) -> None:
        self._counted += 1
        super().take(now_ns, tokens)


class _AtTheEdges(Door):
    def __init__(self, config: Any, *others: Any) -> None:
        super().__init__(config, *others)
        self._limits = {name: _Windowed(config.tenants[name]) for name in self._limits}


class _Counting(Admission):
    door: ClassVar[type[Door]] = _AtTheEdges
