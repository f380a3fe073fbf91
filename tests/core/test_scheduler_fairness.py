"""Fairness inside a class: the bound, the traps, and what happens when a safeguard is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.scheduler.admission import Request
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies.fifo import Fifo
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.tenants import TenantLane, Ticket
from scheduler_kit import MS, Scene, gateway, serve_backlogged

WEIGHTS = {"a": 5.0, "b": 3.0, "c": 2.0}


# ---------------------------------------------------------------- the reference without one safeguard


class ForgetsDebt(StartTimeFairQueue):
    """A tenant that comes back after idling starts at the present, whatever it owes."""

    def joined(self, lane: TenantLane) -> None:
        if not lane.running and len(lane.waiting) == 1:
            lane.tag = 0.0
        super().joined(lane)


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


# ---------------------------------------------------------------- shares


def constant(random: Random) -> int:
    return 1000


def small(random: Random) -> int:
    return 1 + int(random.random() * 20)


def pareto(random: Random) -> int:
    """Shape 1.2 from 300, cut at 8 times the mean (1,800)."""
    return int(min(14_400.0, 300 / (1 - random.random()) ** (1 / 1.2)))


def shares(policy: type[FairQueue], cost: Callable[[Random], int], jobs: int = 10_000) -> dict[str, float]:
    """Shares of work of three tenants that always have work waiting."""
    random = Random(7)
    scene = Scene(gateway(slots=16, tenant_slots=16, weights=WEIGHTS), policy=policy)
    serve_backlogged(scene, [*WEIGHTS], jobs, lambda _: cost(random), depth=20, order=Random(8))
    total = sum(scene.work.values())
    return {tenant: scene.work[tenant] / total for tenant in WEIGHTS}


@pytest.mark.parametrize("cost", [constant, small, pareto])
def test_three_tenants_get_50_30_20_percent_of_the_work(cost: Callable[[Random], int]) -> None:
    share = shares(StartTimeFairQueue, cost)
    assert share == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.005)


def test_fifo_serves_whoever_comes_whatever_its_weight() -> None:
    share = shares(Fifo, constant)
    assert share["c"] > 0.3


def test_shares_are_of_work_and_not_of_turns() -> None:
    def by_tenant(policy: type[FairQueue]) -> float:
        scene = Scene(gateway(slots=4, tenant_slots=4), policy=policy)
        serve_backlogged(scene, ["a", "b"], 2_000, lambda t: 10_000 if t == "b" else 1_000, depth=10)
        return scene.work["b"] / sum(scene.work.values())

    assert by_tenant(StartTimeFairQueue) == pytest.approx(0.5, abs=0.01)
    assert by_tenant(IgnoresCost) > 0.85


def share_at_the_cap(policy: type[FairQueue]) -> float:
    """Share of work of the tenant that is due half of it, where calls last as long as they are wide.

    The default cap is 8 of 16 slots, exactly what it is due.
    """
    random = Random(7)
    scene = Scene(gateway(slots=16, weights=WEIGHTS), policy=policy)
    ends: list[tuple[int, int]] = []
    known: set[int] = set()

    def note_ends() -> None:
        for request in scene.running.values():
            if request.id not in known:
                known.add(request.id)
                heappush(ends, (scene.now_ns + 1000 * (request.max_output_tokens or 0), request.id))

    for tenant in WEIGHTS:
        for _ in range(20):
            scene.submit(tenant, pareto(random))
    for _ in range(5_000):
        note_ends()
        scene.now_ns, ended = heappop(ends)
        request = scene.running[ended]
        scene.end(request)
        scene.submit(request.tenant, pareto(random))
    return scene.work["a"] / sum(scene.work.values())


def test_a_cap_of_half_the_slots_leaves_a_share_of_a_half() -> None:
    assert share_at_the_cap(StartTimeFairQueue) == pytest.approx(0.5, abs=0.015)
    assert share_at_the_cap(ForgivesTheCapped) < 0.45


# ---------------------------------------------------------------- the bound


class Tally:
    """Work started per tenant since the interval began, kept from the events alone, and the largest gap."""

    def __init__(self, scene: Scene, weights: dict[str, float]) -> None:
        self.scene = scene
        self.weights = weights
        self.gaps: dict[tuple[str, str], float] = {}
        self._seen = len(scene.events)
        self._started = dict.fromkeys(weights, 0)

    def update(self) -> None:
        for event in self.scene.events[self._seen :]:
            self._started[event.request.tenant] += event.request.max_output_tokens or 0
        self._seen = len(self.scene.events)
        for one, other in combinations(self.weights, 2):
            gap = self._started[one] / self.weights[one] - self._started[other] / self.weights[other]
            self.gaps[one, other] = max(abs(gap), self.gaps.get((one, other), 0.0))


def broken_bounds(policy: type[FairQueue], weights: list[float], slots: int, widest: int, seed: int) -> int:
    """For how many pairs of tenants the gap exceeded (C+1)(cmax_i/wi + cmax_j/wj)."""
    random = Random(seed)
    named = {f"t{i}": weight for i, weight in enumerate(weights)}
    cmax = {name: 1 + int(random.random() * widest) for name in named}
    scene = Scene(gateway(slots=slots, tenant_slots=slots, weights=named), policy=policy)
    tally: list[Tally] = []

    def after() -> None:
        # From the second job on all tenants are backlogged, as `depth` exceeds the slots.
        if not tally:
            tally.append(Tally(scene, named))
        tally[0].update()

    def draw(tenant: str) -> int:
        return cmax[tenant] if random.random() < 0.2 else 1 + int(random.random() * cmax[tenant])

    serve_backlogged(scene, [*named], 300, draw, depth=slots + 2, order=Random(seed + 1), after=after)
    bound = {
        (i, j): (slots + 1) * (cmax[i] / named[i] + cmax[j] / named[j]) for i, j in combinations(named, 2)
    }
    return sum(gap > bound[pair] for pair, gap in tally[0].gaps.items())


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.floats(0.1, 20), min_size=2, max_size=5),
    slots=st.integers(1, 8),
    widest=st.integers(1, 20_000),
    seed=st.integers(0, 2**16),
)
def test_backlogged_tenants_never_drift_apart_further_than_the_bound(
    weights: list[float], slots: int, widest: int, seed: int
) -> None:
    assert broken_bounds(StartTimeFairQueue, weights, slots, widest, seed) == 0


def test_the_bound_is_one_that_can_be_broken() -> None:
    assert broken_bounds(Fifo, [10.0, 1.0], 2, 1000, 3) == 1
    assert broken_bounds(IgnoresCost, [1.0, 1.0], 2, 10_000, 3) == 1


# ---------------------------------------------------------------- idling


def share_after_idling(policy: type[FairQueue]) -> float:
    """Of the 500 jobs after its return, the part of a tenant that was served, then idle for 2,000 jobs."""
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=policy)
    serve_backlogged(scene, ["old", "gone"], 10, lambda _: 1000, depth=2)
    while scene.snapshot.tenants.get("gone"):
        scene.now_ns += MS
        scene.end(next(iter(scene.running.values())))
        scene.submit("old", 1000)
    serve_backlogged(scene, ["old"], 2_000, lambda _: 1000, depth=2)
    before = len(scene.dispatched)
    for _ in range(500):
        scene.submit("gone", 1000)
    serve_backlogged(scene, ["old"], 500, lambda _: 1000, depth=500)
    return scene.dispatched[before : before + 500].count("gone") / 500


def test_idling_banks_no_credit() -> None:
    # Joining up to two units behind the work clock is worth two of these jobs.
    assert share_after_idling(StartTimeFairQueue) == pytest.approx(0.5, abs=0.01)
    assert share_after_idling(BanksCredit) == 1.0


def picks_while_in_debt(policy: type[FairQueue]) -> int:
    """Picks until a tenant is served again whose one job cost 100,000 tokens where 1,000 were expected.

    Nine others always have jobs of 1,000 waiting, so that its debt is worth 9 * 99 of them.
    """
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=policy)
    others = [f"honest-{n}" for n in range(9)]
    huge = scene.submit("huge", 1_000, real_tokens=100_000)
    serve_backlogged(scene, others, 1, lambda _: 1000, depth=2)
    assert huge.id not in scene.running
    again = scene.submit("huge", 1_000)
    picks = 0
    while scene.fate(again) == "waiting":
        picks += 1
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        scene.end(ended)
        scene.submit(ended.tenant, 1000)
    return picks


def test_debt_survives_idling() -> None:
    assert picks_while_in_debt(StartTimeFairQueue) == pytest.approx(9 * 99, abs=20)
    assert picks_while_in_debt(ForgetsDebt) < 150


def underestimators_share(policy: type[FairQueue], waiting: int) -> float:
    """Work share of a tenant with so many jobs waiting or running, of estimate 100 and real cost 5,000."""
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=policy)
    for _ in range(4):
        scene.submit("honest", 100)
    for _ in range(waiting):
        scene.submit("liar", 100, real_tokens=5_000)
    for _ in range(4_000):
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        scene.end(ended)
        liar = ended.tenant == "liar"
        scene.submit(ended.tenant, 100, real_tokens=5_000 if liar else 100)
    return scene.work["liar"] / sum(scene.work.values())


def test_what_was_not_estimated_is_paid_afterwards() -> None:
    assert underestimators_share(StartTimeFairQueue, 4) == pytest.approx(0.5, abs=0.02)
    assert underestimators_share(StartTimeFairQueue, 1) == pytest.approx(0.5, abs=0.02)
    assert underestimators_share(NeverSettles, 4) > 0.9


def picks_after_refund(policy: type[FairQueue]) -> int:
    """Picks, of 500, of a tenant whose 60,000-token over-estimate is refunded after its tag was lifted."""
    scene = Scene(gateway(slots=2, tenant_slots=2), policy=policy)
    for _ in range(4):
        scene.submit("steady", 100)
    big = scene.submit("over", 60_000, real_tokens=100)
    for _ in range(3_000):
        scene.now_ns += MS
        scene.end(next(r for r in scene.running.values() if r is not big))
        scene.submit("steady", 100)
    assert big.id in scene.running
    for _ in range(4):
        scene.submit("over", 100)
    scene.end(big)
    before = len(scene.dispatched)
    for _ in range(500):
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        scene.end(ended)
        scene.submit(ended.tenant, 100)
    return scene.dispatched[before:].count("over")


def test_a_charge_that_was_forgiven_is_not_refunded_as_well() -> None:
    # Half of 500, and at most the sleeper credit of two units, which is twenty of these jobs.
    assert 240 <= picks_after_refund(StartTimeFairQueue) <= 280
    assert picks_after_refund(RefundsForgivenCharges) > 450


def test_a_refund_moves_a_waiting_tenant_ahead_at_once() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2))
    over = scene.submit("over", 60_000, real_tokens=100)
    hold = scene.submit("steady", 1000)
    for _ in range(3):
        scene.submit("steady", 1000)
        scene.submit("over", 1000)
    scene.end(over)
    scene.end(hold)
    for _ in range(2):
        scene.end(next(iter(scene.running.values())))
    assert Counter(scene.dispatched[2:]) == {"over": 2, "steady": 2}


# ---------------------------------------------------------------- a flood of new tenants


def picks_until_ten_services(policy: type[FairQueue], newcomers: int, give_up: int) -> int:
    """Picks until an old backlogged tenant was served ten times, while every job comes from a new tenant."""
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=policy)
    for _ in range(12):
        scene.submit("old", 100)
    for n in range(newcomers):
        scene.submit(f"new-{n}", 100)
    served = 0
    for n in range(give_up):
        scene.now_ns += MS
        scene.end(next(iter(scene.running.values())))
        scene.submit(f"newer-{n}", 100)
        served += scene.dispatched[-1] == "old"
        if served == 10:
            return n
    return give_up


def test_a_flood_of_new_tenants_does_not_bury_an_old_one() -> None:
    newcomers = 100
    # Ten fair rounds, and once the sleeper credit: two units are twenty jobs of each.
    bound = newcomers * (10 + 20 + 3)
    assert picks_until_ten_services(StartTimeFairQueue, newcomers, 5_000) <= bound
    assert picks_until_ten_services(JoinsAtVirtualTime, newcomers, 5_000) == 5_000


# ---------------------------------------------------------------- unknown cost


def liars_share(policy: type[FairQueue], *, reported: bool) -> float:
    """Work share of a tenant whose jobs are all of one kind, declared at 16 tokens and producing 4,000."""
    scene = Scene(gateway(slots=4, tenant_slots=4), policy=policy)

    def send(tenant: str) -> None:
        if tenant == "liar":
            scene.submit("liar", 16, real_tokens=4_000, workflow="agent")
        else:
            scene.submit("honest", 1_000, workflow="chat")

    for tenant in ("liar", "honest"):
        for _ in range(8):
            send(tenant)
    for _ in range(2_000):
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        if reported and ended.tenant == "liar":
            for tokens in range(256, 4_000, 256):
                scene.admission.progress(scene.now_ns, ended.id, tokens)
        scene.end(ended)
        send(ended.tenant)
    return scene.work["liar"] / sum(scene.work.values())


@pytest.mark.parametrize("reported", [False, True])
def test_whoever_declares_too_little_gets_its_share_of_what_it_really_uses(reported: bool) -> None:
    assert liars_share(StartTimeFairQueue, reported=reported) == pytest.approx(0.5, abs=0.02)


def test_an_overrun_is_charged_while_it_is_produced() -> None:
    scene = Scene(gateway(slots=2, tenant_slots=2))
    long = scene.submit("long", 100, real_tokens=5_000)
    hold = scene.submit("other", 100)
    waiting: list[Request] = []
    for _ in range(3):
        waiting += [scene.submit("long", 100), scene.submit("other", 100)]
    scene.admission.progress(scene.now_ns, long.id, 5_000)
    scene.end(hold)
    for _ in range(2):
        scene.end(next(r for r in scene.running.values() if r is not long))
    assert scene.dispatched[2:] == ["other"] * 3


# ---------------------------------------------------------------- a noisy neighbour


def quiet_tenants_wait(policy: type[FairQueue]) -> float:
    """Mean picks that pass before a quiet tenant's job is served, behind a flood of 2,000 jobs."""
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=policy)
    for _ in range(2_000):
        scene.submit("noisy", 1000)
    waits: list[int] = []
    for _ in range(50):
        quiet = scene.submit("quiet", 1000)
        picks = 0
        while scene.fate(quiet) == "waiting":
            scene.now_ns += MS
            scene.end(next(iter(scene.running.values())))
            picks += 1
        waits.append(picks)
    return sum(waits) / len(waits)


def test_a_flood_keeps_nobody_waiting_but_itself() -> None:
    assert quiet_tenants_wait(StartTimeFairQueue) <= 2
    assert quiet_tenants_wait(Fifo) > 30
