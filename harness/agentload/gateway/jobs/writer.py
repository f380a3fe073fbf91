"""Writes batches to a store in a thread of its own, many to a commit. SHELL.

While one commit is being synced the next batches gather; then they are one commit. Without load a batch is
written at once, under load hundreds share one sync: group commit, with nothing to tune.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable

from agentload.gateway.jobs.protocol import Persist, Stored, StoreFailed
from agentload.gateway.jobs.store import JobStore, StoreError

LOG = logging.getLogger("agentload.gateway")
MAX_CHANGES = 512
"""Changes to a commit, at most, so that none waits long for its turn."""


class StoreWriter:
    """Started and closed in the running loop; `told` is called in it, in the order of the batches."""

    def __init__(self, store: JobStore, told: Callable[[Stored | StoreFailed], None]) -> None:
        self._store = store
        self._told = told
        self._batches: deque[Persist] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._failing = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="job-store", daemon=True)
        self._thread.start()

    def put(self, batch: Persist) -> None:
        """Write it, after those before it."""
        with self._wake:
            self._batches.append(batch)
            self._wake.notify()

    async def close(self) -> None:
        """Write what has gathered, and end. The store is left open."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    # ----------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while group := self._next_group():
            news = self._commit(group)
            try:
                self._loop.call_soon_threadsafe(self._tell, news)
            except RuntimeError:
                return  # the loop has ended

    def _next_group(self) -> list[Persist]:
        with self._wake:
            while not self._batches and not self._closing:
                self._wake.wait()
            group: list[Persist] = []
            changes = 0
            while self._batches and (not group or changes + len(self._batches[0].changes) <= MAX_CHANGES):
                group.append(self._batches.popleft())
                changes += len(group[-1].changes)
            return group

    def _commit(self, group: list[Persist]) -> list[Stored | StoreFailed]:
        try:
            outcomes = self._store.commit([change for batch in group for change in batch.changes])
        except StoreError as error:
            if not self._failing:
                LOG.error("jobs cannot be saved: %s", error)
            self._failing = True
            return [StoreFailed(batch.batch, str(error)) for batch in group]
        except Exception as error:  # dead, this thread would leave everybody waiting for ever
            LOG.exception("jobs cannot be saved: unforeseen")
            return [StoreFailed(batch.batch, type(error).__name__) for batch in group]
        if self._failing:
            LOG.warning("jobs can be saved again")
        self._failing = False
        news: list[Stored | StoreFailed] = []
        for batch in group:
            news.append(Stored(batch.batch, tuple(outcomes[: len(batch.changes)])))
            del outcomes[: len(batch.changes)]
        return news

    # ----------------------------------------------------------------- in the loop

    def _tell(self, news: list[Stored | StoreFailed]) -> None:
        for one in news:
            self._told(one)
