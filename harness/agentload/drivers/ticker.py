"""Sleeping until an instant, to the microsecond, beside other greenlets.

libev rounds timers to 1 ms: `gevent.sleep` wakes 0.6 ms late (median). A Linux timerfd, armed with an
absolute time and watched as a file, wakes 0.03 ms late. Elsewhere `gevent.sleep` has to do. See
timerfd_create(2).
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any, Protocol, cast

import gevent

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE = 1
_READABLE = 1
_SECOND_NS = 1_000_000_000


class Ticker(Protocol):
    """Wakes one greenlet at absolute instants of `time.monotonic_ns()`; not shared between greenlets."""

    def sleep_until(self, due_ns: int) -> None:
        """Return at `due_ns`, at once when that has passed. Other greenlets run meanwhile."""
        ...

    def close(self) -> None:
        """Give back its file descriptor."""
        ...


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class TimerfdTicker:
    """The Linux way. Raises OSError where the kernel refuses a timerfd."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._spec = _Itimerspec()
        self._spec_reference = ctypes.byref(self._spec)
        self._hub = cast(Any, gevent.get_hub())
        self._watcher = self._hub.loop.io(self._fd, _READABLE)

    def sleep_until(self, due_ns: int) -> None:
        """See Ticker."""
        if due_ns <= time.monotonic_ns():
            return
        self._spec.value_s, self._spec.value_ns = divmod(due_ns, _SECOND_NS)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, self._spec_reference, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
        self._hub.wait(self._watcher)
        os.read(self._fd, 8)

    def close(self) -> None:
        """See Ticker."""
        if self._fd >= 0:
            self._watcher.stop()
            self._watcher.close()
            os.close(self._fd)
            self._fd = -1


class SleepTicker:
    """The portable way: about 1 ms late."""

    def sleep_until(self, due_ns: int) -> None:
        """See Ticker."""
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            gevent.sleep(left_ns / _SECOND_NS)

    def close(self) -> None:
        """See Ticker."""


def make_ticker() -> Ticker:
    """The best ticker this machine has."""
    if sys.platform == "linux":
        try:
            return TimerfdTicker()
        except (OSError, AttributeError):
            pass
    return SleepTicker()
