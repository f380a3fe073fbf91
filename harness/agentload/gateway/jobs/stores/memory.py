"""A job store in memory, for the simulator and for experiments. PURE.

It behaves as a disk with a group commit does: what `put` has been told is lost in a `crash` until `flush` has
made it safe, and a disk that is `full` takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agentload.gateway.jobs.model import Job
from agentload.gateway.jobs.store import (
    APPLIED,
    Change,
    Delete,
    Fenced,
    Insert,
    Outcome,
    Renew,
    StoreError,
    Update,
)


class MemoryStore:
    """Rows by id. `full`: every commit fails as if the disk were."""

    def __init__(self) -> None:
        self.rows: dict[str, Job] = {}
        self.full = False
        self.commits = 0
        self._put: list[tuple[int, tuple[Change, ...]]] = []

    def load(self) -> list[Job]:
        """Every job, in order of their numbers."""
        return sorted(self.rows.values(), key=lambda job: job.number)

    def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        """Make the changes. Raises StoreError when the disk is full, having changed nothing."""
        if self.full:
            raise StoreError("no space left on device")
        self.commits += 1
        return [self._make(change) for change in changes]

    def close(self) -> None:
        """Nothing is held."""

    # ----------------------------------------------------------------- a group commit, for the simulator

    def put(self, batch: int, changes: tuple[Change, ...]) -> None:
        """Take a batch; it is made with the next flush."""
        self._put.append((batch, changes))

    def flush(self) -> list[tuple[int, list[Outcome] | None]]:
        """Make every batch that was put, in order; what became of each. None: it failed, whole."""
        batches, self._put = self._put, []
        return [(batch, self._try(changes)) for batch, changes in batches]

    def crash(self) -> None:
        """Forget what was not flushed."""
        self._put.clear()

    def _try(self, changes: tuple[Change, ...]) -> list[Outcome] | None:
        try:
            return self.commit(changes)
        except StoreError:
            return None

    def _make(self, change: Change) -> Outcome:
        match change:
            case Insert():
                if change.job.id in self.rows:
                    return Fenced(self.rows[change.job.id])
                self.rows[change.job.id] = change.job
            case Update():
                standing = self.rows.get(change.job.id)
                if standing is None or standing.state.ended or standing.token != change.expect_token:
                    return Fenced(standing)
                self.rows[change.job.id] = change.job
            case Renew():
                standing = self.rows.get(change.id)
                if standing is None or standing.state.ended or standing.token != change.token:
                    return Fenced(standing)
                self.rows[change.id] = replace(standing, leased_until_ns=change.leased_until_ns)
            case Delete():
                self.rows.pop(change.id, None)
        return APPLIED
