"""A twin: the same order among tenants, found by looking at all of them."""

from __future__ import annotations

from typing import ClassVar

from agentload.drivers.simulated.parts import Parts
from agentload.mutants import Mutant
from agentload.scheduler.policies.sfq import LOOK_AHEAD, StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane, Ticket


class TwinLinearScan(Mutant):
    """No heap: the lane with the least tag, and among equals the one that was listed first, by `min`.

    Every decision is the reference's, so that even the digests of its runs are the same.
    """

    cosmetic: ClassVar[bool] = True

    def parts(self) -> Parts:
        return Parts(policy=_Scan)


class _Scan(StartTimeFairQueue):
    def head(self) -> Ticket | None:
        listed = self._listed()
        return _oldest(min(listed, key=_place)) if listed else None

    def head_within(self, room: int) -> Ticket | None:
        nearest = sorted(self._listed(), key=_place)[:LOOK_AHEAD]
        return next((ticket for lane in nearest if (ticket := _oldest(lane)).width <= room), None)

    def _listed(self) -> list[TenantLane]:
        return [lane for lane in self.lanes.values() if lane.entry]

    def _list(self, lane: TenantLane) -> None:
        self._seq += 1
        lane.entry = self._seq


def _place(lane: TenantLane) -> tuple[float, int]:
    return lane.tag, lane.entry


def _oldest(lane: TenantLane) -> Ticket:
    return next(iter(lane.waiting.values()))
