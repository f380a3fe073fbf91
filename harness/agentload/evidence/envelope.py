"""Burst + rate · t: the most that a continuous token bucket lets through, over every window at once."""

from __future__ import annotations

from collections.abc import Iterable

from agentload.model import NS


def highest_level(amounts: Iterable[tuple[int, float]], per_s: float) -> tuple[float, int]:
    """(the most by which amounts exceeded per_s · t in any window, the instant at which that window ends).

    `amounts` are (at_ns, amount), ascending. Σ(s, t) − per_s·(t − s) is greatest over all windows where a
    bucket that fills with every amount and leaks at the rate stands highest, so one pass finds the worst of
    all n²/2 windows. (0.0, 0) for none.
    """
    level, last_ns, peak, peak_ns = 0.0, 0, 0.0, 0
    for at_ns, amount in amounts:
        level = max(0.0, level - (at_ns - last_ns) / NS * per_s) + amount
        last_ns = at_ns
        if level > peak:
            peak, peak_ns = level, at_ns
    return peak, peak_ns
