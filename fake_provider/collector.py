"""Python's cycle collector, run when nobody waits for a token.

It walks every object that lives. With 5,000 open streams that took 0.4 s, in which no event went out: p99
lateness was 377 ms, and is 4 ms without it. Calls leave no cycles behind, so that there is no hurry.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

PERIOD_S = 1.0
IDLE_OBJECTS = 10_000
"""With no call in flight: so many more objects than after the last collection are worth another."""
BUSY_OBJECTS = 3_000_000
"""In the middle of calls only so many are: a leak of several hundred MB."""


@asynccontextmanager
async def collected_when_idle(in_flight: Callable[[], int]) -> AsyncGenerator[None]:
    """Takes the collector into its own hands, for the whole process; `in_flight` tells how many calls are."""
    gc.collect()
    gc.freeze()  # what lives by now lives as long as the process: it is never walked again
    gc.disable()
    looking = asyncio.create_task(_keep_looking(in_flight))
    try:
        yield
    finally:
        looking.cancel()
        gc.unfreeze()
        gc.enable()


async def _keep_looking(in_flight: Callable[[], int]) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        look(in_flight())


def look(in_flight: int) -> None:
    """Collects if it is worth it now. Python counts new objects even while its collector is off."""
    if gc.get_count()[0] >= (BUSY_OBJECTS if in_flight else IDLE_OBJECTS):
        gc.collect()
