"""The thread that writes jobs, over a store that fails in ways nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentload.gateway.jobs.protocol import Persist, Stored, StoreFailed
from agentload.gateway.jobs.store import Change, Outcome
from agentload.gateway.jobs.stores.memory import MemoryStore
from agentload.gateway.jobs.writer import StoreWriter


class OddStore(MemoryStore):
    """Its first commit fails with an error that is no StoreError."""

    def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        self.commits += 1
        if self.commits == 1:
            raise KeyError("unforeseen")
        return [self._make(change) for change in changes]


def test_an_unforeseen_failure_is_told_and_the_next_batch_is_written() -> None:
    told: list[Stored | StoreFailed] = []

    async def run() -> None:
        writer = StoreWriter(OddStore(), told.append)
        for batch in (1, 2):
            writer.put(Persist(batch, ()))
            while len(told) < batch:
                await asyncio.sleep(0)
        await writer.close()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert told == [StoreFailed(1, "KeyError"), Stored(2, ())]
