"""What is kept of one tenant inside one class: its waiting line, and its place in virtual time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from agentload.scheduler.retry_after import VirtualQueue
from agentload.scheduler.virtual_time import Flow
from agentload.scheduler.work import Request, WorkEstimate

if TYPE_CHECKING:
    from agentload.scheduler.classes import ServiceClass
    from agentload.scheduler.door import Stake
    from agentload.scheduler.routes import Route


class State(IntEnum):
    """Where a ticket is."""

    WAITING = 0
    RUNNING = 1
    GONE = 2


WAITING, RUNNING, GONE = State
"""By themselves: looking one up in its enumeration costs as much as a call."""


class Ticket:
    """The scheduler's own notes on one request, from submission to its end."""

    __slots__ = (
        "bytes",
        "charged",
        "class_epoch",
        "epoch",
        "estimated_output_tokens",
        "fallback_model",
        "lane",
        "limits",
        "output_tokens",
        "provider_tokens",
        "queued_ns",
        "request",
        "route",
        "service_class",
        "stake",
        "started_ns",
        "state",
        "stuck_ns",
        "width",
        "work",
    )

    def __init__(
        self,
        request: Request,
        service_class: ServiceClass,
        lane: TenantLane,
        estimated_output_tokens: int,
        work: int,
        provider_tokens: int,
        queued_ns: int,
        route: Route,
    ) -> None:
        self.request = request
        self.route = route
        """Its model's."""
        self.limits = route.limits
        """Those that it is started by."""
        self.fallback_model: str | None = None
        """The model that is called instead of its own."""
        self.service_class = service_class
        self.lane = lane
        self.estimated_output_tokens = estimated_output_tokens
        self.work = work
        """Micro-units charged at dispatch."""
        self.width = work if work < service_class.widest else service_class.widest
        """Micro-units of the pool that it holds while it runs: its work, as far as that can be granted."""
        self.provider_tokens = provider_tokens
        """What the provider has charged, or will."""
        self.bytes = request.body_bytes
        self.queued_ns = queued_ns
        self.state = WAITING
        self.epoch = 0
        """The lane's epoch when it was charged."""
        self.class_epoch = 0
        self.charged = 0
        """Micro-units charged so far."""
        self.output_tokens = 0
        """Produced so far, as far as reported."""
        self.stake: Stake | None = None
        """What it holds of budgets and of its tenant's limit; None where nothing is counted."""
        self.started_ns = 0
        self.stuck_ns: int | None = None
        """Since when it has been at the head without fitting; None when it never was."""

    def estimate(self, now_ns: int) -> WorkEstimate:
        """What it is expected to cost, dimension by dimension."""
        request = self.request
        left_ns = None if request.deadline_ns is None else request.deadline_ns - now_ns
        return WorkEstimate(
            request.input_tokens,
            self.estimated_output_tokens,
            request.tool_calls,
            request.tool_seconds,
            None if left_ns is None else left_ns // 1_000_000,
            request.service_class,
        )


class TenantLane(Flow):
    """One tenant's line: first come, first served."""

    __slots__ = (
        "blocked",
        "bytes",
        "entry",
        "promises",
        "retiring",
        "running",
        "serving",
        "tenant",
        "waiting",
        "work",
    )

    def __init__(self, tenant: str, weight: float) -> None:
        super().__init__(weight)
        self.tenant = tenant
        self.waiting: OrderedDict[int, Ticket] = OrderedDict()
        """By request id, the oldest first; kept by the queue, with the sums of it."""
        self.work = 0
        """Micro-units waiting."""
        self.bytes = 0
        """Bytes waiting."""
        self.running = 0
        self.serving = 0
        """Micro-units running, as estimated."""
        self.blocked = False
        """At its cap: not to be picked until something of it ends."""
        self.entry = 0
        """Its place in the policy's own index; 0 when it is not listed there."""
        self.retiring = False
        """Listed among the idle lanes that are forgotten once virtual time has passed them."""
        self.promises: VirtualQueue | None = None
        """Places in this lane promised to refused callers; None when none were."""

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.running and not self.waiting

    @property
    def newest(self) -> Ticket:
        """The youngest waiting ticket. Raises StopIteration when nothing waits."""
        return next(reversed(self.waiting.values()))

    @property
    def load(self) -> float:
        """Requests waiting per weight: how far over its share of the queue the tenant is."""
        return len(self.waiting) / self.weight


class HeaviestLane:
    """Finds the lane with the largest load, in amortised O(log n): a max-heap that is built when it is asked
    for and kept up for as many pushes as building it cost. While nobody asks, it costs nothing.

    Only growth has to be reported: a lane that shrank is found to be lighter when it comes to the top, and a
    lane that grew has been listed again, above.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TenantLane]] = []
        self._seq = 0
        self.kept_for = 0
        """Pushes for which the heap is still kept up."""

    def grew(self, lane: TenantLane) -> None:
        """The lane got one more waiting ticket."""
        if self.kept_for:
            self.kept_for -= 1
            self._add(lane)

    def top(self, waiting: Iterable[Ticket]) -> TenantLane | None:
        """The heaviest lane of those that have something `waiting`, or None; the first among equals."""
        if not self.kept_for:
            self._build({ticket.lane.tenant: ticket.lane for ticket in waiting})
        heap = self._heap
        while heap:
            negative_load, entry, lane = heap[0]
            if not lane.waiting:
                heappop(heap)
            elif lane.load < -negative_load:
                heapreplace(heap, (-lane.load, entry, lane))
            else:
                return lane
        return None

    def _build(self, lanes: dict[str, TenantLane]) -> None:
        self._heap = []
        for lane in lanes.values():
            self._add(lane)
        self.kept_for = 64 + 2 * len(lanes)

    def _add(self, lane: TenantLane) -> None:
        self._seq += 1
        heappush(self._heap, (-lane.load, self._seq, lane))
