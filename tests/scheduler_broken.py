"""The reference with one safeguard missing: what the tests of that safeguard must notice."""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.deadlines import Deadlines
from agentload.scheduler.dispatcher import Dispatcher
from agentload.scheduler.estimate import Estimator
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.pool import Pool
from agentload.scheduler.reasons import Reason
from agentload.scheduler.tenants import TenantLane, Ticket
from agentload.scheduler.work import Request
from scheduler_kit import Exact

# ---------------------------------------------------------------- order and accounts


class ForgetsDebt(StartTimeFairQueue):
    """A tenant that idles is forgotten, whatever it owes."""

    def may_forget(self, lane: TenantLane) -> bool:
        return True


class RefundsForgivenCharges(StartTimeFairQueue):
    """A refund always counts in full, even of a charge that joining anew has forgiven."""

    def charge(self, ticket: Ticket, work: int) -> None:
        ticket.epoch = ticket.lane.epoch
        super().charge(ticket, work)


class JoinsAtVirtualTime(StartTimeFairQueue):
    """Plain start-time fair queueing: a newcomer joins where the last one was picked."""

    def join_at(self, lane: TenantLane) -> float:
        return self.v


class BanksCredit(StartTimeFairQueue):
    """A returning tenant keeps the tag that it had before it idled."""

    def join_at(self, lane: TenantLane) -> float:
        return 0.0

    def may_forget(self, lane: TenantLane) -> bool:
        return False


class ForgivesTheCapped(StartTimeFairQueue):
    """A tenant that comes off its cap starts at the present, like one that was idle."""

    def resumed(self, lane: TenantLane) -> None:
        self.joined(lane)


class NeverSettles(StartTimeFairQueue):
    """What was estimated is charged, and never corrected."""

    def charge(self, ticket: Ticket, work: int) -> None:
        pass


class IgnoresCost(StartTimeFairQueue):
    """A turn is a turn: fair in requests, not in work."""

    def started(self, ticket: Ticket) -> None:
        ticket.work, work = 1_000_000, ticket.work
        super().started(ticket)
        ticket.work = work
        ticket.charged = work

    def charge(self, ticket: Ticket, work: int) -> None:
        pass


class IgnoresWeights(StartTimeFairQueue):
    """All tenants weigh the same."""

    def lane(self, tenant: str, weight: float) -> TenantLane | None:
        return super().lane(tenant, 1.0)


class TakesHeadOrNothing(StartTimeFairQueue):
    """A head that does not fit keeps everybody else from starting."""

    def head_within(self, room: int) -> Ticket | None:
        return None


class Whim(StartTimeFairQueue):
    """Picks among the waiting as it likes."""

    def head(self) -> Ticket | None:
        lanes = [lane for lane in self.lanes.values() if lane.waiting and not lane.blocked]
        return next(iter(SystemRandom().choice(lanes).waiting.values())) if lanes else None

    def head_within(self, room: int) -> Ticket | None:
        return None


class PicksFromASet(StartTimeFairQueue):
    """Picks whichever name a set happens to yield first: another one in every process."""

    def head(self) -> Ticket | None:
        names = {lane.tenant for lane in self.lanes.values() if lane.waiting and not lane.blocked}
        return next(iter(self.lanes[next(iter(names))].waiting.values())) if names else None

    def head_within(self, room: int) -> Ticket | None:
        return None


# ---------------------------------------------------------------- bounds and caps


class NoCap(StartTimeFairQueue):
    """One tenant may hold every slot."""

    tenant_cap = False


class DropsNewcomers(StartTimeFairQueue):
    """A full queue is full for everybody."""

    evicts = False


class UnboundedTenants(ServiceClass):
    """A tenant may have as much waiting as the class."""

    def tenant_exceeds(self, lane: TenantLane) -> bool:
        return False


class UnboundedClass(ServiceClass):
    """A class may have as much waiting as comes."""

    def exceeded(self) -> Reason | None:
        return None


class NeverLooksAgain(Deadlines):
    """What waits is never looked at again."""

    def leave_ns(self, now_ns: int, ticket: Ticket) -> int:
        return now_ns + 10**18


class WaitsForEver(Exact):
    """Nothing that waits is ever too old."""

    deadlines = NeverLooksAgain


# ---------------------------------------------------------------- capacity


class ReleasesTooMuch(Pool):
    """Gives back a micro-unit more than was taken."""

    def release(self, share: Any, tenant: str, width: int) -> int:
        self._change(share, -1, 0)
        return super().release(share, tenant, width)


class Overcommits(Pool):
    """Has as many units as anybody wants."""

    def room(self, share: Any) -> int:
        return self.capacity if super().room(share) >= 0 else -1


class KeepsNoFloors(Pool):
    """Lends everything, what a class is short of its floor included."""

    def room(self, share: Any) -> int:
        return self.capacity - self.units_used if self.slots_free else -1


class NeverGathers(Dispatcher):
    """A job that does not fit is passed by others for ever."""

    def _behind(self, now_ns: int, cls: ServiceClass, head: Ticket, room: int) -> Ticket | None:
        return self._first_within(cls, room)


# ---------------------------------------------------------------- admission


class DispatchesOne(Exact):
    """Starts one at a time, however many could."""

    def _dispatch(self, now_ns: int) -> None:
        ticket = self._dispatcher.next(now_ns)
        if ticket is not None:
            self._start(now_ns, ticket)


class LosesTheExpired(Exact):
    """What has waited too long is dropped, and nobody is told."""

    def _expire(self, ticket: Ticket, reason: Reason) -> None:
        self._withdraw(ticket)


class CountsRefusalsAsAdmitted(Exact):
    """Whoever came was admitted."""

    def _refused_to_wait(self, now_ns: int, ticket: Ticket) -> Any:
        refused = super()._refused_to_wait(now_ns, ticket)
        if refused is not None:
            self._counters.admitted += 1
        return refused


class PassingLane(Exact):
    """Passes over nobody: never gathers."""

    dispatcher = NeverGathers


class AsIfServiceTookNoTime(Deadlines):
    """A deadline counts when it has passed, and not when it will have."""

    def service_ns(self, now_ns: int, request: Request, cls: ServiceClass) -> int:
        return 0


class DropsOnlyTheExpired(Exact):
    """Starts whatever has not expired yet."""

    deadlines = AsIfServiceTookNoTime


class LearnsNothing(Estimator):
    """What was declared, for ever."""

    def served(self, now_ns: int, request: Request, output_tokens: int, service_ns: int) -> None:
        pass


class Unlearning(Exact):
    """Estimates are what was declared."""

    estimator = LearnsNothing
