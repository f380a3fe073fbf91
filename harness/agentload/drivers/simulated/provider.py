"""The provider's shell in virtual time: brings calls to the core, and sends what is due when it is due.

What `fake_provider/endpoint.py` does with connections. Streams travel in as few pieces as mean the same: the
first token by itself, then up to `piece_tokens` at once, but never across an instant at which the call could
be broken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from agentload.drivers.simulated.gateway import Exchange, UpstreamEvent
from agentload.drivers.simulated.invariants import Watch
from agentload.drivers.simulated.kernel import TIMER, Kernel
from agentload.drivers.simulated.messages import Frame
from agentload.drivers.simulated.network import Timing
from agentload.gateway.failures import FailureKind
from agentload.gateway.headers import Headers
from agentload.gateway.protocol import (
    UpstreamData,
    UpstreamEnded,
    UpstreamFailed,
    UpstreamHeaders,
    UpstreamRead,
)
from agentload.gateway.usage import ProviderError, Reading, Usage
from fake_provider.budget import NS
from fake_provider.call import Call, Refusal, Reset, Service, Step, Then, Waiting
from fake_provider.core import Provider
from fake_provider.ledger import Ending
from fake_provider.openai import OpenAIChat
from fake_provider.wire import http_date

_JSON: Headers = ((b"content-type", b"application/json"),)
_STREAM: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
_OVERLOADED = ProviderError(code="server_is_overloaded", message="The requested model is overloaded.")
_INVALID = ProviderError(code="invalid_answer", message="the body is not a chat completion")
"""What the gateway makes of a plain body that ends early but well-formed."""
_WIRE = OpenAIChat()

Answered = Callable[[tuple[Exchange, Sequence[UpstreamEvent]]], None]


class SimulatedProvider:
    """The gateway tells `call` and `leave`; answers go to `answered`."""

    def __init__(
        self, kernel: Kernel, timing: Timing, core: Provider, answered: Answered, watch: Watch
    ) -> None:
        self.kernel = kernel
        self.timing = timing
        self.core = core
        self._answered = answered
        self._watch = watch
        self._exchanges: dict[int, Exchange] = {}
        """By the number of the call."""
        self._rearm()

    def call(self, exchange: Exchange) -> None:
        """A call has come in."""
        request = exchange.caller.submission.call_request()
        if exchange.model is not None:
            request = replace(request, model=exchange.model)
        decision = self.core.arrive(self.kernel.now_ns, request)
        match decision:
            case Service():
                self._attach(exchange, decision.call)
                self._serve(exchange, decision.call)
            case Waiting():
                self._attach(exchange, decision.call)
            case Refusal():
                self._refuse(exchange, decision)
            case Reset():
                self._send(exchange, UpstreamFailed(exchange.number, FailureKind.BROKEN))
        self._watch.provider(self.kernel.now_ns)

    def leave(self, exchange: Exchange) -> None:
        """The gateway has closed the connection of a call."""
        call = exchange.call
        if call is not None and self._exchanges.pop(call.number, None) is not None:
            self._wake(self.core.ended(self.kernel.now_ns, call, Ending.CANCELLED))
            self._watch.provider(self.kernel.now_ns)

    # ----------------------------------------------------------------- serving

    def _attach(self, exchange: Exchange, call: Call) -> None:
        exchange.call = call
        self._exchanges[call.number] = exchange

    def _wake(self, started: Sequence[Call]) -> None:
        for call in started:
            self._serve(self._exchanges[call.number], call)

    def _serve(self, exchange: Exchange, call: Call) -> None:
        if call.request.stream:
            self._send(exchange, UpstreamHeaders(exchange.number, 200, _STREAM))
        self._wait(exchange, call)

    def _wait(self, exchange: Exchange, call: Call) -> None:
        """Look for the next piece, and be back when it is due (never, for a stall that nobody ends)."""
        exchange.piece = self._piece(exchange, call) if call.request.stream else 1
        self._wait_for(exchange, self.core.next_step(call, exchange.piece))

    def _wait_for(self, exchange: Exchange, step: Step) -> None:
        if step.due_ns is not None:
            at_ns = self.timing.timer_ns(self.kernel.now_ns, step.due_ns)
            self.kernel.at(at_ns, self._due, exchange, TIMER)

    def _due(self, exchange: Exchange) -> None:
        """Deliver the piece that is due, unless the call has ended or a fault has put the piece off."""
        call, now_ns = exchange.call, self.kernel.now_ns
        if call is None or call.entry.ending is not Ending.OPEN:
            return None
        step = self.core.next_step(call, exchange.piece)
        if step.due_ns is None or step.due_ns > now_ns:
            return self._wait_for(exchange, step)
        started = self.core.deliver(now_ns, call, step)
        self._deliver(exchange, call, step)
        if step.then is Then.CONTINUE:
            self._wait(exchange, call)
        else:
            del self._exchanges[call.number]
        self._wake(started)
        return self._watch.provider(now_ns)

    def _piece(self, exchange: Exchange, call: Call) -> int:
        """Tokens that may travel together next."""
        timing, most, cuts_ns = call.timing, self.timing.piece_tokens, exchange.caller.cuts_ns
        if timing is None or cuts_ns is None or call.produced == 0:
            return 1
        if timing.step_ns == 0:
            return most
        first_ns = timing.token_ns(call.produced)
        last_ns = first_ns + self.timing.piece_ns
        for cut_ns in (*cuts_ns, self.core.faults.next_boundary_ns(self.kernel.now_ns)):
            if cut_ns is not None and self.kernel.now_ns < cut_ns < last_ns:
                last_ns = cut_ns
        return max(1, min(most, (last_ns - first_ns) // timing.step_ns + 1))

    # ----------------------------------------------------------------- answering

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        fields, body = _WIRE.refusal(refusal)
        number = exchange.number
        if refusal.retry_at_s is not None:  # a date is read against the answer's own
            fields.append((b"date", http_date((self.core.epoch_ns + self.kernel.now_ns) // NS)))
        headers = UpstreamHeaders(number, refusal.status, (*_JSON, *fields))
        self._send(exchange, headers, UpstreamData(number, body), UpstreamEnded(number))

    def _deliver(self, exchange: Exchange, call: Call, step: Step) -> None:
        if call.request.stream:
            self._send(exchange, *_streamed(exchange.number, call, step))
        else:
            self._send(exchange, *_plain(exchange.number, call, step))

    def _send(self, exchange: Exchange, *events: UpstreamEvent) -> None:
        self.kernel.at(
            self.kernel.now_ns + self.timing.upstream_one_way_ns, self._answered, (exchange, events)
        )

    # ----------------------------------------------------------------- faults

    def _rearm(self) -> None:
        """Be back when the core wants to be told the time: a fault begins or ends."""
        wakeup_ns = self.core.wakeup_ns()
        if wakeup_ns is not None:
            at_ns = self.timing.timer_ns(self.kernel.now_ns, wakeup_ns)
            self.kernel.at(at_ns, self._tick, None, TIMER)

    def _tick(self, _: None) -> None:
        self._wake(self.core.tick(self.kernel.now_ns))
        self._watch.provider(self.kernel.now_ns)
        self._rearm()


def _streamed(number: int, call: Call, step: Step) -> list[UpstreamEvent]:
    """The events of one piece of a stream, and of how it ends there."""
    events: list[UpstreamEvent] = [UpstreamRead(number, _reading(call, step))]
    if step.then is not Then.CONTINUE:
        events.append(UpstreamEnded(number, clean=step.then not in (Then.CLOSE, Then.RESET)))
    return events


def _plain(number: int, call: Call, step: Step) -> list[UpstreamEvent]:
    """The events of a plain answer, which comes at once, whole or not."""
    if step.then is Then.RESET:
        return [UpstreamFailed(number, FailureKind.BROKEN)]
    return [
        UpstreamHeaders(number, 200, _JSON),
        UpstreamRead(number, _reading(call, step)),
        UpstreamEnded(number, clean=step.then in (Then.COMPLETE, Then.END)),
    ]


def _reading(call: Call, step: Step) -> Reading:
    tokens, seq = step.last - step.first, 0 if call.marker is None else call.marker.seq
    if step.then is Then.COMPLETE:
        used = Usage(call.request.input_tokens, call.output_tokens)
        frame = Frame(seq, tokens, used.input_tokens, used.output_tokens, done=True)
        return Reading(forward=frame.encode(), tokens=tokens, usage=used, terminal=True)
    error = None
    if call.request.stream:
        error = _OVERLOADED if step.then is Then.ERROR else None
    elif step.then is Then.END:
        error = _INVALID
    return Reading(forward=Frame(seq, tokens).encode(), tokens=tokens, error=error)
