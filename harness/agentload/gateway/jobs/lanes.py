"""Who waits: the jobs of each tenant in each class, in the order in which they were accepted. PURE.

Only `ahead` steps of a lane stand in admission's queue at once; the rest wait here, however many they are. So
admission chooses among tenants (its fairness, its bounds), and a tenant with ten thousand jobs fills no queue
with them. A lane whose step was refused for load asks again after its Retry-After, with the same job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush


class Lane:
    """The jobs of one tenant in one class that wait."""

    def __init__(self, number: int, service_class: str, tenant: str) -> None:
        self.number = number
        """Unique among lanes, for its timer."""
        self.service_class = service_class
        self.tenant = tenant
        self.asking = 0
        """Chat steps that stand in admission's queue."""
        self.paused_until_ns = 0
        """Admission refused one: nothing is asked before then."""
        self.members: list[int] = []
        """Numbers of its jobs that wait for anything, in order."""
        self._ready: list[int] = []

    def ready(self, number: int) -> None:
        """The job could ask now. (One that cannot any more is told by its phase when it is popped.)"""
        heappush(self._ready, number)

    def pop(self, at_ns: int, ahead: int) -> int | None:
        """The job that may ask now; None when none may."""
        if self._ready and self.asking < ahead and at_ns >= self.paused_until_ns:
            return heappop(self._ready)
        return None

    def rank(self, number: int) -> int:
        """How many jobs of the lane wait before this one."""
        return bisect_left(self.members, number)


class Lanes:
    """All lanes. Empty ones are forgotten."""

    def __init__(self) -> None:
        self._classes: dict[str, dict[str, Lane]] = {}
        self._by_number: dict[int, Lane] = {}
        self._waiting: dict[str, int] = {}
        self._made = 0

    def of(self, service_class: str, tenant: str) -> Lane:
        """The lane, made when there is none."""
        lanes = self._classes.setdefault(service_class, {})
        lane = lanes.get(tenant)
        if lane is None:
            self._made += 1
            lane = lanes[tenant] = Lane(self._made, service_class, tenant)
            self._by_number[lane.number] = lane
        return lane

    def numbered(self, number: int) -> Lane | None:
        """The lane of that number, if there still is one."""
        return self._by_number.get(number)

    def forget(self, lane: Lane) -> None:
        """Nothing of it waits or asks."""
        self._classes[lane.service_class].pop(lane.tenant, None)
        self._by_number.pop(lane.number, None)

    def join(self, lane: Lane, number: int) -> None:
        """The job waits, for whatever it may be."""
        insort(lane.members, number)
        self._waiting[lane.service_class] = self.waiting(lane.service_class) + 1

    def leave(self, lane: Lane, number: int) -> None:
        """The job waits no more."""
        del lane.members[lane.rank(number)]
        self._waiting[lane.service_class] -= 1

    def waiting(self, service_class: str) -> int:
        """Jobs of the class that wait."""
        return self._waiting.get(service_class, 0)

    def waiting_in_all(self) -> int:
        """Jobs that wait."""
        return sum(self._waiting.values())

    def oldest(self) -> Iterator[int]:
        """Of each lane with any, the job that was accepted first."""
        return (lane.members[0] for lane in self._by_number.values() if lane.members)

    def paused(self, at_ns: int) -> int:
        """Jobs of lanes that admission has told to wait."""
        return sum(len(lane.members) for lane in self._by_number.values() if lane.paused_until_ns > at_ns)

    def position(self, lane: Lane, number: int) -> int:
        """From 1: how many jobs of the class are expected to be begun before this one, and itself.

        Its own lane goes in order, and the others take turns with it. An estimate: weights are not looked at.
        """
        own = lane.rank(number) + 1
        lanes = self._classes[lane.service_class].values()
        return own + sum(min(len(other.members), own) for other in lanes if other is not lane)
