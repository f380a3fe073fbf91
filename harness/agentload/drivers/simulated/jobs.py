"""Durable jobs' shell in virtual time: what `gateway/jobs/shell.py` does with threads and sockets.

The store is the in-memory one, which loses what was not flushed when the gateway is killed; the tools are the
fake provider's own desk. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agentload.drivers.simulated.digest import EventLog
from agentload.drivers.simulated.gateway import RESET, Exchange, Inquiry, SimulatedGateway
from agentload.drivers.simulated.kernel import TIMER, Kernel
from agentload.drivers.simulated.network import Timing
from agentload.gateway.headers import first
from agentload.gateway.jobs.front import FrontAction
from agentload.gateway.jobs.protocol import (
    CancelTool,
    JobEnded,
    Persist,
    Recovered,
    StartTool,
    Stored,
    StoreFailed,
    ToolAnswered,
)
from agentload.gateway.jobs.stores.memory import MemoryStore
from agentload.gateway.protocol import Action, Respond, StartUpstream
from agentload.model import Arrival, Job
from fake_provider.call import CallRequest
from fake_provider.openai import OpenAIChat
from fake_provider.tools import ToolBody, ToolDesk, ToolRequest, ToolVisit

_WIRE = OpenAIChat()
_TOOL_BODY = msgspec.json.Decoder(ToolBody)
_JSON = ((b"content-type", b"application/json"),)
_NO_SIZE = Job(input_tokens=0, output_tokens=0, declared_output_tokens=None)


class StepSubmission:
    """A chat step's call, as the provider reads it; the run's marker says whose it is."""

    def __init__(self, body: bytes, tenants: Sequence[str]) -> None:
        self._request = _WIRE.parse({}, body)
        marker = self._request.marker
        self.arrival = Arrival(
            seq=-1 if marker is None else marker.seq,
            tenant="" if marker is None else tenants[marker.tenant],
            service_class="",
            phase="",
            due_ns=0,
            job=_NO_SIZE,
        )

    def call_request(self) -> CallRequest:
        """As the provider reads it."""
        return self._request


class StepCaller:
    """Whom the gateway calls the provider for, when it is for a job: nobody waits at a connection."""

    cuts_ns: tuple[int, ...] | None = None

    def __init__(self, number: int, submission: StepSubmission) -> None:
        self.number = number
        self.submission = submission

    def hear(self, action: Action) -> None:
        """What a job's request is answered goes to the job."""

    def cut(self, reason: str) -> None:
        """Nobody hears it."""


class ToolExchange:
    """One call of a tool."""

    __slots__ = ("call", "connected", "visit")

    def __init__(self, call: StartTool) -> None:
        self.call = call
        self.connected = True
        self.visit: ToolVisit | None = None


class SimulatedJobs:
    """The store and the calls of one gateway's jobs. It outlives the gateways that are killed."""

    def __init__(
        self,
        kernel: Kernel,
        timing: Timing,
        gateway: SimulatedGateway,
        store: MemoryStore,
        desk: ToolDesk,
        tenants: Sequence[str],
        log: EventLog,
    ) -> None:
        """`tenants`: their names, by their numbers in markers."""
        self.kernel = kernel
        self.timing = timing
        self.gateway = gateway
        self.store = store
        self.desk = desk
        self._tenants = tenants
        self._log = log
        self._flush: int | None = None
        self._tools: dict[int, ToolExchange] = {}
        self._inquiries: dict[int, Inquiry] = {}

    def started(self) -> None:
        """A new process finds what is in the store."""
        self.gateway.feed(Recovered(tuple(self.store.load())))

    def killed(self) -> None:
        """What was not flushed is lost, every connection breaks. The tools go on."""
        self.store.crash()
        if self._flush is not None:
            self.kernel.cancel(self._flush)
            self._flush = None
        for call_id in list(self._tools):
            self._hang_up(call_id)
        for inquiry in self._inquiries.values():
            self._send(inquiry.cut, RESET)
        self._inquiries.clear()

    def ask(self, inquiry: Inquiry) -> None:
        """A request about jobs has come in."""
        self._inquiries[inquiry.number] = inquiry
        self.gateway.feed(inquiry.event)

    def takes(self, action: FrontAction) -> bool:
        """Whether this is ours; calls of chat steps become the gateway's own exchanges."""
        match action:
            case Persist() | StartTool() | CancelTool() | JobEnded():
                return True
            case StartUpstream() if action.request_id < 0:
                submission = StepSubmission(action.call.body, self._tenants)
                self.gateway.adopt(Exchange(StepCaller(action.request_id, submission)))
                return False
            case _:
                return action.request_id in self._inquiries

    def carry_out(self, action: FrontAction) -> None:
        """Do one thing."""
        match action:
            case Persist():
                self.store.put(action.batch, action.changes)
                if self._flush is None:
                    at_ns = self.kernel.now_ns + self.timing.commit_ns
                    self._flush = self.kernel.at(at_ns, self._flushed, None, TIMER)
            case StartTool():
                exchange = self._tools[action.call_id] = ToolExchange(action)
                self._send(self._called, exchange)
            case CancelTool():
                self._hang_up(action.call_id)
            case JobEnded():
                job = action.job
                self._log.add(self.kernel.now_ns, job.number, job.tenant, "job", f"{job.state} {job.reason}")
            case Respond():
                self._send(self._inquiries.pop(action.request_id).hear, action)
            case _:
                raise AssertionError(f"not about jobs: {action}")

    def _send(self, callback: Callable[[Any], None], message: object) -> None:
        self.kernel.at(self.kernel.now_ns + self.timing.one_way_ns, callback, message)

    # ----------------------------------------------------------------- the store

    def _flushed(self, _: None) -> None:
        """A commit is done: what had gathered is safe, and the gateway hears so."""
        self._flush = None
        if self.gateway.hold(self._flushed, None):
            return
        for batch, outcomes in self.store.flush():
            news = StoreFailed(batch) if outcomes is None else Stored(batch, tuple(outcomes))
            self.gateway.feed(news)

    # ----------------------------------------------------------------- tools

    def _called(self, exchange: ToolExchange) -> None:
        """A call has reached its tool."""
        if not exchange.connected:
            return
        now_ns, visit = self.kernel.now_ns, self.desk.arrive(self.kernel.now_ns, _request(exchange.call))
        exchange.visit = visit
        if visit.effect_due_ns is not None:
            self.kernel.at(self.timing.timer_ns(now_ns, visit.effect_due_ns), self._effect, visit, TIMER)
        if visit.answer_due_ns is not None:
            self.kernel.at(self.timing.timer_ns(now_ns, visit.answer_due_ns), self._answer, exchange, TIMER)

    def _effect(self, visit: ToolVisit) -> None:
        self.desk.effect(self.kernel.now_ns, visit)

    def _answer(self, exchange: ToolExchange) -> None:
        if exchange.connected and exchange.visit is not None:
            said = self.desk.answer(self.kernel.now_ns, exchange.visit)
            self._send(self._answered, (exchange, *said))

    def _answered(self, said: tuple[ToolExchange, int, bytes]) -> None:
        exchange, status, body = said
        if not exchange.connected or self.gateway.hold(self._answered, said):
            return
        exchange.connected = False
        self._tools.pop(exchange.call.call_id, None)
        self.gateway.feed(ToolAnswered(exchange.call.call_id, status, _JSON, body))

    def _hang_up(self, call_id: int) -> None:
        exchange = self._tools.pop(call_id, None)
        if exchange is not None and exchange.connected:
            exchange.connected = False
            self._send(self._left, exchange)

    def _left(self, exchange: ToolExchange) -> None:
        if exchange.visit is not None:
            self.desk.left(self.kernel.now_ns, exchange.visit)


def _request(call: StartTool) -> ToolRequest:
    step, attempt = first(call.headers, b"x-job-step"), first(call.headers, b"x-attempt")
    return ToolRequest(
        tool=call.name,
        key=first(call.headers, b"idempotency-key"),
        job=first(call.headers, b"x-job-id"),
        step=None if step is None else int(step),
        attempt=None if attempt is None else int(attempt),
        body=_TOOL_BODY.decode(call.body),
    )
