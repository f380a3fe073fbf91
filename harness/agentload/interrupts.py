"""^C, for every command that has something to lose."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = "interrupted by the user"
"""What a manifest says of a run that its user ended."""
OUT_OF_TIME = "ended by -t, before the plan did"
"""The same where Locust's own time limit (`--run-time`) ended it."""


_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
handled = False
"""An interrupt came that a command took note of: it says so itself."""


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], object], numbers: Iterable[int]
) -> Generator[None]:
    """These signals go to `handler` meanwhile, and to whom they went before afterwards."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def interruptible(stop: Callable[[], None]) -> Generator[None]:
    """The first ^C calls `stop`, so that what was done is reported; the second just leaves, and so does the
    first where `stop` raises KeyboardInterrupt.

    SIGTERM and a closed terminal (SIGHUP) count as ^C.
    """
    interrupts = 0

    def on_signal(_number: int, _frame: object) -> None:
        global handled
        nonlocal interrupts
        interrupts += 1
        handled = False
        if interrupts > 1:
            raise KeyboardInterrupt
        stop()
        handled = True

    with _handled_by(on_signal, _ENDS):
        yield


class WayOut:
    """Whether a run's user wants out: of a load with a report, of what comes before it at once."""

    def __init__(self) -> None:
        self.because: str | None = None
        """What ends the run before its time."""
        self._signalled = self._waiting = False

    def on_signal(self) -> None:
        """For `interruptible`."""
        self.because, self._signalled = INTERRUPTED, True
        if self._waiting:
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Generator[None]:
        """While others are waited for, half a minute perhaps, and nothing was sent that could be reported.

        Raises KeyboardInterrupt, also for a signal that came before.
        """
        self._waiting = True
        try:
            if self._signalled:
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False


@contextmanager
def raising() -> Generator[None]:
    """SIGTERM and SIGHUP are ^C where something must be ended first: else they end us without a word.

    Changes nothing outside the main thread, nor where somebody has taken care of them already.
    """
    ours = threading.current_thread() is threading.main_thread()
    plain = [number for number in _ENDS if ours and signal.getsignal(number) == signal.SIG_DFL]
    with _handled_by(signal.default_int_handler, plain):
        yield


@contextmanager
def deferred() -> Generator[None]:
    """An interrupt that comes meanwhile is heard afterwards, whichever of our threads takes it.

    Around what must not be left half done, such as the start of a process whose id nobody would know then.
    What is started meanwhile hears of it as ever. Changes nothing outside the main thread.
    """
    came: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    heard = [number for number in _ENDS if ours and signal.getsignal(number) is not signal.SIG_IGN]
    try:
        with _handled_by(lambda number, _frame: came.append(number), heard):
            yield
    finally:
        for late in came:
            signal.raise_signal(late)


@contextmanager
def held_back() -> Generator[None]:
    """As `deferred`, and never heard by processes started meanwhile, either.

    A process that is interrupted while it still imports would print a traceback.
    """
    with deferred():
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
