"""Waiting for conditions, and whether a process is there."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until it is true; fails after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never came true"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """There, and no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def children_of(pid: int) -> list[int]:
    """Direct children."""
    return [child.pid for child in psutil.Process(pid).children()]
