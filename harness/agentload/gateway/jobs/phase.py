"""Where a job is in this process; `lifecycle.py` draws how it gets from one to the next. PURE."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a job is in this process."""

    STORING = "storing"
    WAITING = "waiting"
    ASKING = "asking"
    CLAIMING = "claiming"
    RUNNING = "running"
    SETTLING = "settling"
    ENDED = "ended"
    LOST = "lost"
