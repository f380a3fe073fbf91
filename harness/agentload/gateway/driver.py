"""Connects the core to the loop: the clock, the wake-up timer, and who gets which action. SHELL."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.front import FrontAction, FrontEvent
from agentload.gateway.jobs.shell import JobsShell
from agentload.gateway.log_lines import FIELDS, request_fields, worth_a_line
from agentload.gateway.protocol import Action, Record, Tick
from agentload.gateway.upstream import Upstream
from agentload.scheduler.snapshot import Snapshot

LOG = logging.getLogger("agentload.gateway")


class Front(Protocol):
    """A GatewayCore, or one with jobs beside it."""

    def handle(self, now_ns: int, event: Any, /) -> Sequence[FrontAction]: ...

    def next_wakeup_ns(self) -> int | None: ...


class Listener(Protocol):
    """Somebody whose request is open."""

    request_id: int

    def put(self, action: Action) -> None: ...


class Driver:
    """Feeds events to the core, and its actions to the exchanges that they are for."""

    def __init__(self, core: GatewayCore, upstream: Upstream, jobs: JobsShell | None = None) -> None:
        self.core = core
        self.upstream = upstream
        self.jobs = jobs
        """Durable jobs; None: there are none."""
        self._front: Front = core if jobs is None else jobs.front
        self._exchanges: dict[int, Listener] = {}
        self._ids = itertools.count(1)
        self._slow_wait_ns = round(core.settings.slow_wait_s * 1e9)
        self._wakeup: asyncio.TimerHandle | None = None
        self._wakeup_ns: int | None = None

    @staticmethod
    def now_ns() -> int:
        """The core's clock. On Linux it is the same for every process of a machine."""
        return time.monotonic_ns()

    def snapshot(self, *, tenants: int) -> Snapshot:
        """The scheduler in numbers, with at most so many tenants."""
        return self.core.admission.snapshot(self.now_ns(), tenants=tenants)

    def next_id(self) -> int:
        """A number for a request that has come in."""
        return next(self._ids)

    @property
    def busy(self) -> bool:
        """Whether anything is under way that a drain should wait for."""
        return self.core.open_requests > 0 if self.jobs is None else self.jobs.front.busy

    def attach(self, exchange: Listener) -> None:
        """Actions for this exchange's request go to it from now on."""
        self._exchanges[exchange.request_id] = exchange

    def detach(self, exchange: Listener) -> None:
        """The exchange is over."""
        self._exchanges.pop(exchange.request_id, None)

    def feed(self, event: FrontEvent) -> None:
        """Tell the core, hand out what follows, and be back when it next wants to know the time."""
        now_ns = self.now_ns()
        for action in self._front.handle(now_ns, event):
            self._hand_out(action)
        self._set_wakeup(now_ns)

    def _hand_out(self, action: FrontAction) -> None:
        if isinstance(action, Record):
            log(action, self._slow_wait_ns)
        if self.jobs is not None and self.jobs.takes(action):
            self.jobs.carry_out(action)
        elif (exchange := self._exchanges.get(action.request_id)) is not None:  # type: ignore[union-attr]
            exchange.put(action)  # type: ignore[arg-type]

    def _set_wakeup(self, now_ns: int) -> None:
        """One timer on the loop. One that is too early is left alone: a needless Tick does no harm."""
        next_ns = self._front.next_wakeup_ns()
        if next_ns is None or (self._wakeup_ns is not None and self._wakeup_ns <= next_ns):
            return
        if self._wakeup is not None:
            self._wakeup.cancel()
        # Whole milliseconds, rounded up: uvloop rounds to them, and rounding down would spin.
        delay_ms = max(0, -(-(next_ns - now_ns) // 1_000_000))
        self._wakeup_ns = next_ns
        self._wakeup = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._tick)

    def _tick(self) -> None:
        self._wakeup = self._wakeup_ns = None
        self.feed(Tick())


def log(record: Record, slow_wait_ns: int) -> None:
    """One line for each request that was refused, failed, or slow."""
    if LOG.isEnabledFor(logging.INFO) and worth_a_line(record, slow_wait_ns):
        LOG.info("request", extra={FIELDS: request_fields(record)})
