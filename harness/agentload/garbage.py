"""How often a process looks for garbage."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """For a process that simulates: what a run records lives until the run is over, so looking through it
    again and again finds nothing. It saves 5 to 8 % of a simulation; cycles are still found, only later."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
