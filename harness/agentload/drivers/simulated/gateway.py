"""The gateway's shell in virtual time: feeds the core and carries out what it says.

It decides nothing. What `gateway/driver.py` and `gateway/exchange.py` do with sockets is done here with
messages that take a fixed time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from agentload.drivers.simulated.digest import EventLog
from agentload.drivers.simulated.invariants import Watch
from agentload.drivers.simulated.kernel import TIMER, Kernel
from agentload.drivers.simulated.messages import Submission
from agentload.drivers.simulated.network import Timing
from agentload.gateway.core import GatewayCore
from agentload.gateway.jobs.front import FrontAction, FrontEvent, JobsFront
from agentload.gateway.jobs.protocol import JobAsked, JobPosted
from agentload.gateway.protocol import (
    Action,
    CancelUpstream,
    ClientLeft,
    Record,
    Respond,
    StartUpstream,
    Submitted,
    Tick,
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
    UpstreamRead,
)
from agentload.model import Arrival
from fake_provider.call import Call, CallRequest

if TYPE_CHECKING:
    from agentload.drivers.simulated.jobs import SimulatedJobs

REFUSED = "connection-refused"
RESET = "connection-reset"
"""As `drivers/http1_answer.py` words them."""

UpstreamEvent: TypeAlias = UpstreamHeaders | UpstreamData | UpstreamRead | UpstreamEnded | UpstreamFailed


class Asked(Protocol):
    """What the provider is called for."""

    @property
    def arrival(self) -> Arrival: ...

    def call_request(self) -> CallRequest: ...


class Party(Protocol):
    """Whom a call to the provider is for."""

    number: int
    """Unique in the run: the gateway's request id."""

    @property
    def submission(self) -> Asked: ...

    cuts_ns: tuple[int, ...] | None
    """Instants at which its stream may be broken off: no piece spans one. None: token by token."""

    def hear(self, action: Action) -> None:
        """The gateway says something to it."""
        ...

    def cut(self, reason: str) -> None:
        """Its connection is reset, or refused."""
        ...


class Caller(Party, Protocol):
    """One attempt, as the gateway sees it from its side of the connection."""

    @property
    def submission(self) -> Submission: ...


class Inquiry(Protocol):
    """One request about durable jobs: a POST or a GET."""

    number: int
    """As a Caller's."""
    event: JobPosted | JobAsked

    def hear(self, respond: Respond, /) -> None: ...

    def cut(self, reason: str, /) -> None: ...


class Examination(Protocol):
    """One request for the health page."""

    def hear(self, status: int, /) -> None: ...

    def cut(self, reason: str, /) -> None: ...


class Upstream(Protocol):
    """Who takes the calls."""

    def call(self, exchange: Exchange) -> None: ...

    def leave(self, exchange: Exchange) -> None: ...


class Exchange:
    """One request at the gateway, and its call to the provider."""

    __slots__ = ("call", "caller", "connected", "model", "piece")

    def __init__(self, caller: Party) -> None:
        self.caller = caller
        self.connected = False
        """Whether the connection to the provider is open: nothing is read from a closed one."""
        self.model: str | None = None
        """The model that is called instead of the one asked for."""
        self.call: Call | None = None
        """The provider's side of it, once it was admitted there."""
        self.piece = 1
        """Tokens of the piece of the stream that is being waited for."""

    @property
    def number(self) -> int:
        """The request's id."""
        return self.caller.number


class SimulatedGateway:
    """Clients tell `arrive` and `leave`, the provider tells `answered`; faults kill it and hold it up."""

    def __init__(
        self, kernel: Kernel, timing: Timing, core: GatewayCore, log: EventLog, watch: Watch
    ) -> None:
        self.kernel = kernel
        self.timing = timing
        self.core = core
        self.front: GatewayCore | JobsFront = core
        """What is told: the core, or the core with jobs beside it."""
        self.jobs: SimulatedJobs | None = None
        """The jobs' store and calls; None: it keeps no jobs."""
        self.upstream: Upstream
        """Connected by the world before it begins."""
        self._log = log
        self._watch = watch
        self._exchanges: dict[int, Exchange] = {}
        self._wakeup: int | None = None
        self._wakeup_ns: int | None = None
        self._alive = True
        self._held: list[tuple[Callable[..., None], Any]] | None = None
        """What has come since it was paused, in order; None while it runs."""
        self.lost_sight_of = 0
        """Attempts that the present core's counters do not show: of cores before it, or refused without."""

    @property
    def answers(self) -> bool:
        """Whether it would answer if it were asked something now."""
        return self._alive and self._held is None

    @property
    def open_exchanges(self) -> int:
        """Requests that have not ended."""
        return len(self._exchanges)

    def arrive(self, caller: Caller) -> None:
        """A request has come in."""
        if not self._alive:
            self.lost_sight_of += 1
            self._send(caller.cut, REFUSED)
            return
        if self.hold(self.arrive, caller):
            return
        self._exchanges[caller.number] = Exchange(caller)
        envelope = caller.submission.envelope(self.kernel.now_ns, caller.number)
        self.feed(Submitted(caller.number, envelope))

    def ask(self, inquiry: Inquiry) -> None:
        """A request about durable jobs has come in."""
        if not self._alive:
            self._send(inquiry.cut, REFUSED)
        elif not self.hold(self.ask, inquiry) and self.jobs is not None:
            self.jobs.ask(inquiry)

    def examine(self, examination: Examination) -> None:
        """A request for the health page has come in."""
        if not self._alive:
            self._send(examination.cut, REFUSED)
        elif not self.hold(self.examine, examination):
            self._send(examination.hear, 503 if self.core.ailment() else 200)

    def adopt(self, exchange: Exchange) -> None:
        """A call to the provider that no client waits for: a job's."""
        self._exchanges[exchange.number] = exchange

    def leave(self, caller: Caller) -> None:
        """A client has closed its connection."""
        if not self.hold(self.leave, caller) and caller.number in self._exchanges:
            self.feed(ClientLeft(caller.number))

    def answered(self, said: tuple[Exchange, Sequence[UpstreamEvent]]) -> None:
        """The provider's answer, or a piece of it."""
        if self.hold(self.answered, said):
            return
        exchange, events = said
        for event in events:
            if exchange.connected:
                # Before the core hears of it: it may call again at once, over a connection of its own.
                exchange.connected = not isinstance(event, UpstreamEnded | UpstreamFailed)
                self.feed(event)

    def feed(self, event: FrontEvent) -> None:
        """Tell the core, do what follows, and be back when it next wants to know the time."""
        now_ns = self.kernel.now_ns
        for action in self._handle(now_ns, event):
            if self.jobs is None or not self.jobs.takes(action):
                self.carry_out(action)  # type: ignore[arg-type]
            else:
                self.jobs.carry_out(action)
        self._watch.gateway(now_ns, event)
        self._set_wakeup(now_ns)

    def _handle(self, now_ns: int, event: FrontEvent) -> Sequence[FrontAction]:
        front = self.front
        if isinstance(front, JobsFront):
            return front.handle(now_ns, event)
        return front.handle(now_ns, event)  # type: ignore[arg-type]  # nobody tells it of jobs

    def carry_out(self, action: Action) -> None:
        """Do one thing that the core wants done."""
        exchange = self._exchanges.get(action.request_id)
        if exchange is None:
            return
        match action:
            case StartUpstream():
                exchange.connected = True
                exchange.model = action.call.fallback_model
                self._note(exchange, "dispatched", "")
                self._send(self.upstream.call, exchange, self.timing.upstream_one_way_ns)
            case CancelUpstream():
                self._disconnect(exchange)
            case Record():
                del self._exchanges[action.request_id]
                self._note(exchange, "released", action.outcome)
            case _:
                self._send(exchange.caller.hear, action)

    def _note(self, exchange: Exchange, event: str, outcome: str) -> None:
        arrival = exchange.caller.submission.arrival
        self._log.add(self.kernel.now_ns, arrival.seq, arrival.tenant, event, outcome)

    def _disconnect(self, exchange: Exchange) -> None:
        if exchange.connected:
            exchange.connected = False
            self._send(self.upstream.leave, exchange, self.timing.upstream_one_way_ns)

    def _send(self, callback: Callable[..., None], message: object, one_way_ns: int | None = None) -> None:
        """To a client, unless another delay is given."""
        delay_ns = self.timing.one_way_ns if one_way_ns is None else one_way_ns
        self.kernel.at(self.kernel.now_ns + delay_ns, callback, message)

    def _set_wakeup(self, now_ns: int) -> None:
        """One timer. One that is too early is left alone: a needless Tick does no harm."""
        next_ns = self.front.next_wakeup_ns()
        if next_ns is None or (self._wakeup_ns is not None and self._wakeup_ns <= next_ns):
            return
        if self._wakeup is not None:
            self.kernel.cancel(self._wakeup)
        self._wakeup_ns = next_ns
        self._wakeup = self.kernel.at(self.timing.timer_ns(now_ns, next_ns), self._tick, None, TIMER)

    def _tick(self, _: None) -> None:
        self._wakeup = self._wakeup_ns = None
        if not self.hold(self._tick, None):
            self.feed(Tick())

    # ----------------------------------------------------------------- faults

    def kill(self) -> None:
        """All that it knew is lost, every connection breaks. Never while it is paused."""
        self._alive = False
        self.lost_sight_of += self.offered
        for exchange in self._exchanges.values():
            self._disconnect(exchange)
            self._send(exchange.caller.cut, RESET)
        self._exchanges.clear()
        if self._wakeup is not None:
            self.kernel.cancel(self._wakeup)
            self._wakeup = self._wakeup_ns = None
        if self.jobs is not None:
            self.jobs.killed()

    @property
    def offered(self) -> int:
        """Attempts of clients that the present core has counted (jobs offer it their own)."""
        offered = self.core.admission.snapshot(self.kernel.now_ns, tenants=0).counters.offered
        return offered - (self.front.asked if isinstance(self.front, JobsFront) else 0)

    def start(self, front: GatewayCore | JobsFront) -> None:
        """A new process, which knows nothing but what is in its jobs' store."""
        self.front = front
        self.core = front.core if isinstance(front, JobsFront) else front
        self._alive = True
        self._watch.replaced(self.core)
        if self.jobs is not None:
            self.jobs.started()

    def pause(self) -> None:
        """It stands still: what comes is held for it."""
        if self.answers:
            self._held = []

    def resume(self) -> None:
        """It goes on: timers first, then what has come meanwhile."""
        held, self._held = self._held or [], None
        for callback, argument in sorted(held, key=lambda one: one[0] != self._tick):
            callback(argument)

    def hold(self, callback: Callable[..., None], argument: object) -> bool:
        if self._held is not None:
            self._held.append((callback, argument))
        return self._held is not None
