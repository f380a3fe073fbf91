"""An asyncio event loop in virtual time: when nothing is left to do, it jumps to the next timer.

For in-memory work only: real sockets and threads know nothing of it. Timers run in the order of (instant,
when they were set), so a run is the same every time; asyncio's own heap leaves ties to chance.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class _Timer(asyncio.TimerHandle):
    """A timer that knows when it was set."""

    __slots__ = ("order",)

    order: int

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _Timer)
        return (self.when(), self.order) < (other.when(), other.order)


class _Jump(selectors.DefaultSelector):
    """Stands in for waiting: time passes at once. (What is registered is the loop's own wake-up pipe.)"""

    def __init__(self) -> None:
        super().__init__()
        self.loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock in virtual time: nothing is ready and no timer is set")
        if timeout > 0:
            self.loop.jump()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now_ns` is the present; it moves only when everything of an instant is done."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._set = 0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-9  # with 0, timers that are due would never be seen to be

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        exact = round(when * 1e9) / 1e9  # sums of floats must not make two instants of one
        timer = _Timer(exact, callback, args, self, context)
        self._set += 1
        timer.order = self._set
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def jump(self) -> None:
        """To the next timer."""
        self.now_ns = max(self.now_ns, round(self._scheduled[0].when() * 1e9))


def run(patch: pytest.MonkeyPatch, main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)` in virtual time; `time.monotonic_ns` tells it, too."""
    loop = VirtualLoop()
    patch.setattr(time, "monotonic_ns", lambda: loop.now_ns)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
