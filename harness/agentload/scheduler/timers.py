"""Alarms by key: set, moved and cancelled in O(log n), without a clock."""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Timers:
    """At most one alarm per key. A cancelled one stays in the heap until it surfaces or too many are dead."""

    def __init__(self) -> None:
        self._at: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: int, at_ns: int) -> None:
        """Set or move the key's alarm."""
        self._at[key] = at_ns
        heappush(self._heap, (at_ns, key))
        if len(self._heap) > 64 + 2 * len(self._at):
            self._heap = [(at, key) for key, at in self._at.items()]
            heapify(self._heap)

    def cancel(self, key: int) -> None:
        """Forget the key's alarm, if it has one."""
        self._at.pop(key, None)

    def pop_due(self, now_ns: int) -> int | None:
        """The key of the earliest alarm that is due, which is then forgotten; None when none is due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            at, key = heappop(heap)
            if self._at.get(key) == at:
                del self._at[key]
                return key
        return None

    def next_ns(self) -> int | None:
        """When the earliest alarm is due, or None."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self._at.get(key) == at:
                return at
            heappop(heap)
        return None
