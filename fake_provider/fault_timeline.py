"""The faults that were asked for, and which of them bear on an instant and a call."""

from __future__ import annotations

import math
from typing import Any

from fake_provider.call import Call, Cut
from fake_provider.faults import AtArrival, Fault


class FaultTimeline:
    """Faults by number, in the order in which they were added; the first that says something wins."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._next_number = 1

    def add(self, fault: Fault) -> int:
        """Adds a fault and returns its number."""
        number = self._next_number
        self._next_number += 1
        self._faults[number] = fault
        return number

    def remove(self, number: int) -> bool:
        """Takes a fault away; False when there is none of that number."""
        return self._faults.pop(number, None) is not None

    def clear(self) -> None:
        """Takes all faults away."""
        self._faults.clear()

    def listing(self, now_ns: int) -> list[dict[str, Any]]:
        """Every fault with its number, kind and parameters, and whether it is active."""
        return [
            {"id": number, "kind": fault.kind, "active": fault.active(now_ns), **fault.model_dump()}
            for number, fault in self._faults.items()
        ]

    def next_boundary_ns(self, after_ns: int) -> int | None:
        """The first start or end of a fault after that instant."""
        times = [time for fault in self._faults.values() for time in (fault.start_ns, fault.end_ns)]
        return min((time for time in times if time is not None and time > after_ns), default=None)

    def at_arrival(self, now_ns: int, call: Call) -> tuple[Fault, AtArrival] | None:
        """What a fault does to an arriving call, and which one it is."""
        if not self._faults:
            return None
        for fault in self._hitting(now_ns, call):
            decision = fault.at_arrival(call)
            if decision is not None:
                return fault, decision
        return None

    def slow_down_factor(self, now_ns: int, call: Call) -> float:
        """What the times of an answer that begins now are multiplied by."""
        if not self._faults:
            return 1.0
        return math.prod(fault.slow_down_factor() for fault in self._hitting(now_ns, call))

    def cut(self, now_ns: int, call: Call) -> Cut | None:
        """How an answer that begins now will end early."""
        if not self._faults:
            return None
        cuts = (fault.cut(call) for fault in self._hitting(now_ns, call))
        return next((cut for cut in cuts if cut is not None), None)

    def held_until_ns(self, due_ns: int, call: Call) -> int | None:
        """When tokens due at that time may really go out; None: nobody knows yet."""
        if not self._faults:
            return due_ns
        stalls = [fault for fault in self._faults.values() if fault.holds_tokens and fault.concerns(call)]
        while holding := [fault for fault in stalls if fault.active(due_ns)]:
            ends = [fault.end_ns for fault in holding]
            known = [end for end in ends if end is not None]
            if len(known) < len(ends):
                return None
            due_ns = max(known)
        return due_ns

    def tokens_factor(self, now_ns: int) -> float:
        """What the token limits are multiplied by now."""
        return math.prod(fault.tokens_factor() for fault in self._faults.values() if fault.active(now_ns))

    def slots(self, now_ns: int) -> int | None:
        """The slots that the faults of this instant leave; None: they do not touch them."""
        limits = (fault.slots() for fault in self._faults.values() if fault.active(now_ns))
        return min((limit for limit in limits if limit is not None), default=None)

    def _hitting(self, now_ns: int, call: Call) -> list[Fault]:
        return [fault for fault in self._faults.values() if fault.active(now_ns) and fault.concerns(call)]
