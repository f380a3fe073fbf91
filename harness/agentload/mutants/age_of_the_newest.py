"""The gauge of queue age shows somebody who has only just come."""

from __future__ import annotations

import msgspec

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.mutants._scenes import STUCK
from agentload.scheduler.admission import Admission, Snapshot


class AgeOfTheNewest(Mutant):
    """Queue age is measured since the last one joined, so that it is least when most is waiting.

    As with a "last activity" timestamp that every newcomer refreshes: 50 that have not moved for ten minutes
    look as young as the last of them, and the alert that is there for them stays silent.
    """

    row = "–"
    breaks = "nobody is paged while work is stuck, as long as more of it keeps coming"
    killed_by = "queue-age-alert"
    profile = STUCK

    def parts(self) -> Parts:
        return Parts(admission=_Newest)


class _Newest(Admission):
    def snapshot(self, now_ns: int, *, tenants: int = 100) -> Snapshot:
        seen = super().snapshot(now_ns, tenants=tenants)
        queues = [cls.queue.waiting for cls in self._classes.values() if cls.queue.waiting]
        newest_ns = max((next(reversed(queue.values())).queued_ns for queue in queues), default=now_ns)
        return msgspec.structs.replace(seen, oldest_wait_ns=now_ns - newest_ns)
