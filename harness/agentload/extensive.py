"""Quantities that grow with the load: counts and rates; not ratios, latencies and a call's size."""

from __future__ import annotations

from math import floor
from typing import NamedTuple, overload


class Growth(NamedTuple):
    """How a profile is scaled: what its quantities are multiplied by."""

    load: float
    """Rates, users, queues, limits."""
    slots: float
    """Calls at once. The same as `load` where slots decide what the provider can do; where tokens do, slots
    become fewer by less: the chance that all are taken stays what it was."""
    time: float
    """The length of the phases."""


@overload
def grown(value: int, factor: float) -> int: ...
@overload
def grown(value: float, factor: float) -> float: ...
@overload
def grown(value: None, factor: float) -> None: ...
def grown(value: float | None, factor: float) -> float | None:
    """The quantity times `factor`; whole numbers stay whole (halves go up), and one above 0 stays at least 1.

    By 1 everything is itself. None, for "no bound", stays None.
    """
    if value is None or factor == 1:
        return value
    if isinstance(value, int):
        return max(min(value, 1), floor(value * factor + 0.5))
    return value * factor
