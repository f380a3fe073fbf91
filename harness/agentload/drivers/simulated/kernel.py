"""Virtual time: a heap of things to do, in the order of (instant, priority, when they were asked for)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

Callback: TypeAlias = Callable[[Any], None]

MESSAGE = 0
"""What arrives at an instant comes before what runs out at it: an answer that is just in time is in time."""
TIMER = 1
OBSERVE = 2
"""Gauges are read when everything of an instant has happened."""
_FEW_CANCELLED = 64


class Kernel:
    """Integer nanoseconds, no randomness, no hash order: what was asked for alone decides what runs when."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        """Things done so far."""
        self._heap: list[tuple[int, int, int, Callback, Any]] = []
        self._asked = 0
        self._cancelled: set[int] = set()
        self._stopped = False

    def at(self, at_ns: int, callback: Callback, argument: object = None, priority: int = MESSAGE) -> int:
        """Have `callback(argument)` called at an instant (at the present one if that has passed).

        Returns a handle for `cancel`.
        """
        self._asked = handle = self._asked + 1
        if at_ns < self.now_ns:
            at_ns = self.now_ns
        heappush(self._heap, (at_ns, priority, handle, callback, argument))
        return handle

    def cancel(self, handle: int) -> None:
        """Do not do it after all. Only for what has not been done yet."""
        self._cancelled.add(handle)
        if len(self._cancelled) > _FEW_CANCELLED + len(self._heap) // 2:
            self._heap[:] = [item for item in self._heap if item[2] not in self._cancelled]
            heapify(self._heap)
            self._cancelled.clear()

    def run(self, until_ns: int) -> None:
        """Do what is due up to and including `until_ns`, which is the present afterwards, or until `stop`."""
        self._stopped = False
        heap, cancelled = self._heap, self._cancelled
        while heap and heap[0][0] <= until_ns:
            at_ns, _, handle, callback, argument = heappop(heap)
            if cancelled and handle in cancelled:
                cancelled.discard(handle)
                continue
            self.now_ns = at_ns
            self.events += 1
            callback(argument)
            if self._stopped:
                return
        self.now_ns = max(self.now_ns, until_ns)

    def stop(self) -> None:
        """Have `run` return after the present event; it may be called again."""
        self._stopped = True
