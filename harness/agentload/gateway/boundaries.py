"""The queues of the gateway, one after the other: how many wait at each, and for how long the oldest. PURE.

A request waits in its class until the pool has a place for it, and then, first in line, until the provider's
bucket lets it go; a durable job waits in its store. Depth says little (5,000 that are gone in a minute are
fine), the age of the oldest says whether it moves.
"""

from __future__ import annotations

from typing import NamedTuple

from agentload.gateway.job_figures import JobFigures
from agentload.scheduler.snapshot import Snapshot


class Boundary(NamedTuple):
    """One queue."""

    boundary: str
    """class, provider or jobs."""
    name: str
    depth: int
    age_ns: int
    """Of the oldest that waits; 0 when nothing does."""
    max_wait_ns: int | None = None
    """The age at which one is given up; None where nothing is."""


def boundaries(seen: Snapshot, jobs: JobFigures | None = None) -> list[Boundary]:
    """All of them, empty ones included."""
    found = [
        Boundary("class", name, one.waiting, one.oldest_wait_ns, one.max_wait_ns)
        for name, one in seen.classes.items()
    ]
    held = seen.provider.held_ns is not None
    found.append(Boundary("provider", "bucket", seen.waiting if held else 0, seen.provider.held_ns or 0))
    if jobs is not None:
        found.append(Boundary("jobs", "store", jobs.waiting, jobs.oldest_wait_ns))
    return found
