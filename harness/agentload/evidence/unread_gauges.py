"""What is missing of the gateway's own gauges, in words: where, how many readings, and what came instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentload.model import GaugeReadings

FEW = 0.1
"""So many of a gauge's readings may be missing without a word: a busy page is late now and then."""
OF_THE_PROCESS = "resident_bytes"
"""Not on any page: read of the system."""
_REASONS = 3


def unread(readings: GaugeReadings | None, names: Iterable[str]) -> str | None:
    """What to say where one of these values is missing in more than `FEW` of the readings; else None."""
    wanted = [name for name in names if name != OF_THE_PROCESS]
    if readings is None or not wanted:
        return None
    lacking = {f"holds no {name}": readings.lacking.get(name, 0) for name in wanted}
    missing = sum(readings.failed.values()) + max(lacking.values())
    if missing <= FEW * readings.reads:
        return None
    reasons = _listed({**readings.failed, **lacking})
    return f"{missing:,} of {readings.reads:,} readings of {readings.where} are missing ({reasons})"


def _listed(reasons: Mapping[str, int]) -> str:
    """The most frequent first."""
    found = sorted(((n, reason) for reason, n in reasons.items() if n), key=lambda one: (-one[0], one[1]))
    some = [f"{n:,} × {reason}" for n, reason in found[:_REASONS]]
    return "; ".join([*some, "…"] if len(found) > _REASONS else some)
