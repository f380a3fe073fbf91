"""What is to be saved, and what is being saved: changes put together, and whose they are. PURE."""

from __future__ import annotations

from typing import TypeAlias

from agentload.gateway.jobs.lifecycle import JobLifecycle
from agentload.gateway.jobs.protocol import Persist
from agentload.gateway.jobs.store import Change

Owned: TypeAlias = tuple[JobLifecycle | None, Change]
"""A change, and the job that is told what became of it; None: nobody is."""


class Batches:
    """One batch is gathered; those that were handed to the store stay here until it has answered."""

    def __init__(self) -> None:
        self._gathered: list[Owned] = []
        self._written: dict[int, list[Owned]] = {}
        self._last = 0

    def __len__(self) -> int:
        """Batches that are being written."""
        return len(self._written)

    def add(self, lifecycle: JobLifecycle | None, change: Change) -> None:
        """One more to be saved."""
        self._gathered.append((lifecycle, change))

    def close(self) -> Persist | None:
        """Hand what was gathered to the store; None when it is nothing."""
        if not self._gathered:
            return None
        self._last += 1
        self._written[self._last], self._gathered = self._gathered, []
        return Persist(self._last, tuple(change for _, change in self._written[self._last]))

    def answered(self, batch: int) -> list[Owned]:
        """What was in a batch that the store has answered; nothing, if it is not known."""
        return self._written.pop(batch, [])
