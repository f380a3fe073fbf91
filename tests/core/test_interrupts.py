"""^C while processes are being started: heard, but afterwards and by nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from agentload import interrupts
from agentload.interrupts import INTERRUPTED, WayOut, deferred, held_back, interruptible

ASKS = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def test_an_interrupt_that_was_held_back_is_heard_afterwards() -> None:
    heard: list[str] = []
    with interruptible(lambda: heard.append("stop")):
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            assert not heard
        assert heard == ["stop"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_another_thread_that_takes_the_signal_does_not_let_it_through() -> None:
    heard: list[str] = []
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    assert other.ident is not None
    with interruptible(lambda: heard.append("stop")):
        with held_back():
            signal.pthread_kill(other.ident, signal.SIGINT)
            over.set()
            other.join()
            assert not heard
        assert heard == ["stop"]


def test_processes_started_meanwhile_never_hear_it() -> None:
    def blocked() -> str:
        return subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, check=True).stdout

    with held_back():
        assert blocked() == "True\n"
    with deferred():
        assert blocked() == "False\n"


def test_what_was_begun_is_finished_before_an_interrupt_is_heard() -> None:
    begun: list[int] = []
    with interruptible(lambda: begun.append(2)), deferred():
        signal.raise_signal(signal.SIGTERM)
        begun.append(1)
    assert begun == [1, 2]


def test_what_was_not_begun_is_left_at_once_and_what_was_is_reported() -> None:
    way = WayOut()
    with interruptible(way.on_signal), pytest.raises(KeyboardInterrupt), way.at_once():
        signal.raise_signal(signal.SIGINT)
    assert not interrupts.handled, "nobody has said so yet"

    way = WayOut()
    with interruptible(way.on_signal):
        with way.at_once():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        assert (way.because, interrupts.handled) == (INTERRUPTED, True)
        with pytest.raises(KeyboardInterrupt), way.at_once():
            pytest.fail("the signal had come before")
