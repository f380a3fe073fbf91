"""Lanes that take turns in a ring: what round-robin and deficit round-robin share."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.tenants import TenantLane, Ticket

LOOK_AHEAD = 8
"""How many lanes are looked at behind a job that does not fit."""


class Ring(FairQueue):
    """Lanes in the order of their turns, the next one first; newcomers join at the end."""

    def __init__(self, max_tenants: int) -> None:
        super().__init__(max_tenants)
        self._ring: OrderedDict[str, TenantLane] = OrderedDict()
        self._weight = 0.0
        """Of all lanes in the ring together."""

    def head_within(self, room: int) -> Ticket | None:
        """The first of the next few lanes whose oldest ticket fits."""
        for lane in islice(self._ring.values(), LOOK_AHEAD):
            if lane.waiting and (ticket := oldest(lane)).width <= room:
                return ticket
        return None

    def part(self, lane: TenantLane) -> float:
        """Its weight among those in the ring."""
        return lane.weight / max(self._weight, lane.weight)

    def joined(self, lane: TenantLane) -> None:
        """At the end of the ring, unless it is in it."""
        if lane.tenant not in self._ring:
            self._ring[lane.tenant] = lane
            self._weight += lane.weight

    def left(self, lane: TenantLane) -> None:
        """Out of the ring, if it is in it."""
        if self._ring.pop(lane.tenant, None) is not None:
            # Weights are floats: start from exactly zero again whenever the ring is empty.
            self._weight = self._weight - lane.weight if self._ring else 0.0


def oldest(lane: TenantLane) -> Ticket:
    """The ticket that has waited longest. Raises StopIteration when nothing waits."""
    return next(iter(lane.waiting.values()))
