"""What is shed is not counted."""

from __future__ import annotations

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes import OBSERVED
from agentload.scheduler.admission import Admission, Snapshot


class EvictionsUncounted(Mutant):
    """Requests that lose their place in the queue end in no counter at all.

    They are answered 429 like the others, and the dashboard shows none of it: the sum of what it shows is
    short by exactly what went wrong.
    """

    row = "–"
    breaks = "requests that were shed appear in no metric, so that nobody sees that any were"
    killed_by = "observable"
    profile = OBSERVED

    def parts(self) -> Parts:
        return Parts(admission=_Uncounted, watched=False)

    def half(self) -> Parts:
        return Parts(admission=_AsCancelled, watched=False)


class _Uncounted(Admission):
    def snapshot(self, now_ns: int, *, tenants: int = 100) -> Snapshot:
        seen = super().snapshot(now_ns, tenants=tenants)
        return msgspec.structs.replace(seen, counters=msgspec.structs.replace(seen.counters, evicted=0))


class _AsCancelled(Admission):
    """Counted, as if their clients had left: the sums are right, and only what clients saw contradicts."""

    def snapshot(self, now_ns: int, *, tenants: int = 100) -> Snapshot:
        seen = super().snapshot(now_ns, tenants=tenants)
        counters = seen.counters
        cancelled = counters.cancelled + counters.evicted
        counted = msgspec.structs.replace(counters, evicted=0, cancelled=cancelled)
        return msgspec.structs.replace(seen, counters=counted)
