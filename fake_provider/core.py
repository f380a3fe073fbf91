"""The provider without sockets or clocks: calls come in, decisions and due times go out.

How to drive it, live or in virtual time:

1. `arrive` decides: `Refusal`, `Reset`, `Waiting` (for a slot), or `Service`.
2. For a call in service ask `next_step`, wait until it is due, ask again (a fault may have changed it), then
   tell `deliver` and only then send the bytes: a call leaves service before its last bytes go out.
3. When a caller leaves, tell `ended(…, Ending.CANCELLED)` at once.
4. `deliver`, `ended` and `tick` return the calls that now enter service. `tick` is due at `wakeup_ns`, which
   changes when faults are added or taken away, and at a reset.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fake_provider import faults, policies
from fake_provider.budget import Headers
from fake_provider.call import (
    Call,
    CallRequest,
    Decision,
    Reason,
    Refusal,
    Reset,
    Service,
    Shortage,
    Step,
    Then,
    Waiting,
)
from fake_provider.config import ProviderConfig
from fake_provider.fault_timeline import FaultTimeline
from fake_provider.faults import Fault, ResetConnection
from fake_provider.ledger import Ending, Entry, Ledger
from fake_provider.marker import Marker
from fake_provider.meter import OutputMeter
from fake_provider.promise import not_before_ns, promising
from fake_provider.reply import ReplyTiming

_VISITS_KEPT = 20_000
"""Markers remembered: a gateway sends a call again within moments, and memory must not grow with calls."""
# What the caller has seen of a status line once the answer ended so; RESET leaves it as it was.
_ANSWERED = (Then.COMPLETE, Then.CLOSE, Then.END, Then.ERROR)


class Provider:
    """One provider. All times are nanoseconds on one clock that never steps back; `now_ns` starts it.

    `epoch_ns` is what to add to that clock to get Unix time, which some answers tell.
    `on_ended` is told every ledger entry once, when it is final. Raises LookupError for a configured fault
    that does not exist, and pydantic.ValidationError for one with wrong parameters.
    """

    def __init__(
        self,
        config: ProviderConfig,
        *,
        run: int = 0,
        now_ns: int = 0,
        epoch_ns: int = 0,
        on_ended: Callable[[Entry], None] | None = None,
    ) -> None:
        self._on_ended = on_ended
        self.config = config
        self.epoch_ns = epoch_ns
        self._calls = 0
        self._in_service = 0
        self._slots: int | None = None
        self._boundary_ns: int | None = None
        """When the next fault starts or ends."""
        self._passed_ns = now_ns
        self._queue: dict[int, Call] = {}
        """Calls that wait for a slot, by number: in order of arrival, and each can leave at once."""
        self._meter = OutputMeter()
        self.reset(now_ns, run, config)

    # ------------------------------------------------------------------------------------------- a call's way

    def arrive(self, now_ns: int, request: CallRequest) -> Decision:
        """A call came: what becomes of it. Every limit is looked at, then all are charged or none."""
        self._pass_boundaries(now_ns)
        call = self._open(now_ns, request)
        hit = self.faults.at_arrival(now_ns, call)
        if hit is not None:
            fault, decision = hit
            if isinstance(decision, ResetConnection):
                call.ledger.refused(call.entry, now_ns, Ending.FAULTED, 0, fault.kind)
                return Reset(call)
            refusal = Refusal(
                call=call,
                status=decision.status,
                reason=decision.reason,
                code=decision.code,
                retry_after_s=decision.retry_after_s,
            )
            return self._refuse(now_ns, refusal, Ending.FAULTED, fault.kind)
        if not self.serves(request.model):
            refusal = Refusal(call=call, status=404, reason=Reason.MODEL_NOT_FOUND)
            return self._refuse(now_ns, refusal, Ending.INVALID, refusal.reason)
        window = self.config.context_tokens
        if window is not None and request.most_tokens > window:
            refusal = Refusal(call=call, status=400, reason=Reason.CONTEXT, context_tokens=window)
            return self._refuse(now_ns, refusal, Ending.INVALID, refusal.reason)
        return self._admit(now_ns, call)

    def invalid(self, now_ns: int, request: CallRequest, status: int) -> Call:
        """A call that the wire format could not read, or an address that nobody serves: only counted."""
        call = self._open(now_ns, request)
        call.ledger.refused(call.entry, now_ns, Ending.INVALID, status, Reason.INVALID)
        return call

    def next_step(self, call: Call, at_least: int = 1) -> Step:
        """The next piece of the answer of a call in service, as things stand now.

        `at_least`: tokens to a piece of a stream (fewer, where the answer ends or is cut), due when the last
        of them is. A simulator asks for large ones, because every piece costs it an event.
        """
        timing = _timing(call)
        cut = call.cut
        stop, then = (call.output_tokens, Then.COMPLETE) if cut is None else (cut.after_tokens, cut.then)
        piece_end = max(timing.chunk_end(call.produced), call.produced + at_least)
        last = min(piece_end, stop) if call.request.stream else stop
        due_ns = self.faults.held_until_ns(timing.token_ns(max(0, last - 1)), call)
        return Step(due_ns, call.produced, last, then if last >= stop else Then.CONTINUE)

    def deliver(self, now_ns: int, call: Call, step: Step) -> list[Call]:
        """A step is about to be sent. Returns the calls that enter service because this one left it."""
        self.produced(now_ns, call, step.last - step.first)
        if step.then is Then.CONTINUE:
            return []
        if step.then in _ANSWERED:
            call.entry.status = 200
        ending = Ending.COMPLETED if step.then is Then.COMPLETE else Ending.CUT
        return self.ended(now_ns, call, ending, call.cut.reason if call.cut is not None else None)

    def produced(self, now_ns: int, call: Call, tokens: int) -> None:
        """So many more tokens of the answer go out."""
        call.produced += tokens
        call.ledger.produced(call.entry, tokens)
        self._meter.charge(now_ns, call, call.produced, self.policy)

    def ended(self, now_ns: int, call: Call, ending: Ending, reason: str | None = None) -> list[Call]:
        """An admitted call leaves, from service or from the queue. Returns the calls that now enter service.

        `reason` says what cut it. Ending a call twice changes nothing.
        """
        if call.entry.ending is not Ending.OPEN:
            return []
        call.entry.reason = reason
        if self._queue.pop(call.number, None) is None:
            self._meter.ended(now_ns, call, self.faults, self.policy)
            self._in_service -= 1
        call.ledger.ended(call.entry, now_ns, ending)
        return self.tick(now_ns)

    def tick(self, now_ns: int) -> list[Call]:
        """Brings limits up to date and fills free slots from the queue, first come, first served."""
        self._pass_boundaries(now_ns)
        started: list[Call] = []
        while self._queue and self._slot_free():
            call = self._queue.pop(next(iter(self._queue)))
            self._start(now_ns, call)
            started.append(call)
        return started

    def wakeup_ns(self) -> int | None:
        """When `tick` is due, if nothing happens before: calls may be waiting for a fault to end."""
        if self._queue and self._slot_free():
            return self._passed_ns
        return self._boundary_ns

    # ------------------------------------------------------------------------------------------- what it says

    def serves(self, model: str) -> bool:
        """Whether calls for that model are answered."""
        return self.config.any_model or model in self.config.models

    def headers(self, now_ns: int, call: Call) -> Headers:
        """The rate-limit fields of an answer that was decided at `now_ns`."""
        return self.policy.headers(now_ns, call.request.caller) if self.config.limit_headers else []

    def snapshot(self, now_ns: int) -> dict[str, Any]:
        """The state of everything in numbers, without the ledger's entries and without secrets."""
        ledger = self.ledger
        self._meter.look(now_ns, self.faults, self.policy)
        return {
            "run": ledger.run,
            "now_ns": now_ns,
            "in_service": self._in_service,
            "queued": len(self._queue),
            "slots": self._slots,
            "counts": ledger.counts,
            "conserved": ledger.counts.conserved(),
            "tenants": ledger.tenants,
            "unattributed": self.unattributed(),
            "limits": self.policy.levels(now_ns),
            "faults": self.faults.listing(now_ns),
        }

    def unattributed(self) -> list[dict[str, Any]]:
        """Calls of this run without a valid marker, by endpoint and model."""
        counted = self.ledger.unattributed.items()
        return [{"endpoint": endpoint, "model": model, "calls": n} for (endpoint, model), n in counted]

    @property
    def in_service(self) -> int:
        """Calls that hold a slot."""
        return self._in_service

    @property
    def queued(self) -> int:
        """Calls that wait for a slot."""
        return len(self._queue)

    # ------------------------------------------------------------------------------------------- control

    def reset(self, now_ns: int, run: int, config: ProviderConfig | None = None) -> None:
        """A new run: empty ledger, full buckets, only the configured faults; another configuration if given.

        Calls in flight go on: they hold their slots, and are counted for the run in which they arrived.
        Raises as the constructor does, and then changes nothing.
        """
        config = self.config if config is None else config
        timeline = FaultTimeline()
        for spec in config.faults:
            timeline.add(faults.make(spec, now_ns))
        self.config = config
        self.policy = policies.make(config, self.epoch_ns)
        self.ledger = Ledger(run, max_entries=config.max_ledger_entries, on_ended=self._on_ended)
        self.faults = timeline
        self._visits: OrderedDict[Marker, int] = OrderedDict()
        """How often each of the latest markers has come."""
        self._apply_faults(now_ns)

    def add_fault(self, now_ns: int, fault: Fault) -> int:
        """Adds a fault and returns its number; the next `tick` is then due at `wakeup_ns`."""
        self._pass_boundaries(now_ns)
        number = self.faults.add(fault)
        self._apply_faults(now_ns)
        return number

    def remove_fault(self, now_ns: int, number: int | None = None) -> bool:
        """Takes one fault away, or all for None; False when there is none of that number."""
        self._pass_boundaries(now_ns)
        found = True
        if number is None:
            self.faults.clear()
        else:
            found = self.faults.remove(number)
        self._apply_faults(now_ns)
        return found

    # ------------------------------------------------------------------------------------------- inside

    def _open(self, now_ns: int, request: CallRequest) -> Call:
        self._calls += 1
        marker = request.marker
        ours = marker if marker is not None and marker.run == self.ledger.run else None
        entry = Entry(
            call=self._calls,
            arrived_ns=now_ns,
            ending=Ending.OPEN,
            run=self.ledger.run,
            tenant=ours.tenant if ours else None,
            seq=ours.seq if ours else None,
            attempt=ours.attempt if ours else None,
            model=request.model,
            endpoint=request.endpoint,
            stream=request.stream,
            input_tokens=request.input_tokens,
            charged_tokens=self.policy.cost(request),
            retry_header=request.retry_count,
        )
        self.ledger.arrived(entry, request.caller)
        wanted = marker.output_tokens if marker is not None else 0
        return Call(
            request,
            entry,
            self.ledger,
            wanted or self.config.default_output_tokens,
            self._draw_key(entry, marker),
        )

    def _draw_key(self, entry: Entry, marker: Marker | None) -> str:
        """The same call of the same run draws the same numbers; a gateway's own retry of it draws others."""
        if marker is None:
            return f"{self.config.seed}/unmarked/{entry.call}"
        visit = self._visits.get(marker, 0)
        self._visits[marker] = visit + 1
        if len(self._visits) > _VISITS_KEPT:
            self._visits.popitem(last=False)
        key = f"{self.config.seed}/{marker.run}/{marker.tenant}/{marker.seq}/{marker.attempt}"
        return f"{key}/{visit}" if visit else key

    def _admit(self, now_ns: int, call: Call) -> Decision:
        caller, cost = call.request.caller, call.entry.charged_tokens
        self._meter.look(now_ns, self.faults, self.policy)
        shortages = self.policy.shortages(now_ns, caller, cost)
        if shortages:
            return self._throttle(now_ns, call, max(shortages, key=_severity))
        waits = bool(self._queue) or not self._slot_free()
        if waits and not self._may_queue():
            refusal = Refusal(call=call, status=call.request.overloaded_status, reason=Reason.SLOTS)
            return self._refuse(now_ns, refusal, Ending.THROTTLED, Reason.SLOTS)
        self.policy.take(now_ns, caller, cost)
        call.ledger.admitted(call.entry)
        if waits:
            call.entry.queued_ns = now_ns
            self._queue[call.number] = call
            return Waiting(call)
        self._start(now_ns, call)
        return Service(call)

    def _throttle(self, now_ns: int, call: Call, shortage: Shortage) -> Refusal:
        reason = Reason.TOO_LARGE if shortage.wait_ns is None else shortage.limit
        refusal = Refusal(call=call, status=429, reason=reason, shortage=shortage)
        if shortage.wait_ns is not None:
            unix_ns = self.epoch_ns + now_ns
            refusal = promising(refusal, shortage.wait_ns, style=self.config.retry_after, unix_ns=unix_ns)
        return self._refuse(now_ns, refusal, Ending.THROTTLED, reason)

    def _refuse(self, now_ns: int, refusal: Refusal, ending: Ending, reason: str) -> Refusal:
        call = refusal.call
        if ending is not Ending.INVALID:
            self.policy.refused(now_ns, call.request.caller)
        instant_ns = not_before_ns(refusal, now_ns=now_ns, epoch_ns=self.epoch_ns)
        if instant_ns is not None:
            call.ledger.promised(call.entry, call.request.caller, instant_ns)
        call.ledger.refused(call.entry, now_ns, ending, refusal.status, reason)
        return refusal

    def _start(self, now_ns: int, call: Call) -> None:
        self._in_service += 1
        call.entry.started_ns = now_ns
        if call.request.stream:
            call.entry.status = 200
        call.cut = self.faults.cut(now_ns, call)
        call.timing = ReplyTiming.plan(
            self.config.latency,
            now_ns=now_ns,
            input_tokens=call.request.input_tokens,
            output_tokens=call.output_tokens,
            draw=call.draw,
            slow=self.faults.slow_down_factor(now_ns, call),
        )

        self._meter.started(call, self.policy)

    def _slot_free(self) -> bool:
        return self._slots is None or self._in_service < self._slots

    def _may_queue(self) -> bool:
        limit = self.config.max_queue
        return self.config.overflow == "queue" and (limit is None or len(self._queue) < limit)

    def _pass_boundaries(self, now_ns: int) -> None:
        """Applies the starts and ends of faults since the last look, each at its own time."""
        while self._boundary_ns is not None and self._boundary_ns <= now_ns:
            self._apply_faults(self._boundary_ns)
        self._passed_ns = now_ns

    def _apply_faults(self, at_ns: int) -> None:
        left, configured = self.faults.slots(at_ns), self.config.slots
        self._slots = (
            configured if left is None else min(left, configured if configured is not None else left)
        )
        self.policy.scale(at_ns, self.faults.tokens_factor(at_ns))
        self._boundary_ns = self.faults.next_boundary_ns(at_ns)
        self._passed_ns = at_ns


def _timing(call: Call) -> ReplyTiming:
    if call.timing is None:
        raise RuntimeError(f"call {call.number} is not in service")
    return call.timing


def _severity(shortage: Shortage) -> float:
    """The limit that binds longest is the one to tell the caller about."""
    return math.inf if shortage.wait_ns is None else shortage.wait_ns
