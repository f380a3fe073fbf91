"""What the scheduler promises, as properties of one random case each: `(core, random)`, or AssertionError.

A `Core` is the reference, or the reference with one safeguard missing: a property that such a core has as
well would prove nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from unittest.mock import patch

from agentload.scheduler.admission import Admission, Dispatched, Request
from agentload.scheduler.classes import ServiceClass
from agentload.scheduler.config import UpstreamLimits
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from agentload.scheduler.pool import Pool
from scheduler_books import KINDS, LIMITS, WORKING, Books, Op, busy_gateway, startable
from scheduler_kit import MS, NS, Exact, Scene, gateway, serve_backlogged
from scheduler_scenes import broken_bounds

SLEEPER_CREDIT = 2_000
"""Tokens by which a tenant may join behind the others, per weight."""


@dataclass(frozen=True)
class Core:
    """The classes that a scheduler is made of."""

    policy: type[FairQueue] | None = None
    admission: type[Admission] = Exact
    pool: type[Pool] = Pool
    service_class: type[ServiceClass] = ServiceClass

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Schedulers made meanwhile are made of them."""
        home = "agentload.scheduler.dispatcher"
        with patch(f"{home}.Pool", self.pool), patch(f"{home}.ServiceClass", self.service_class):
            yield


Property = Callable[[Core, Random], None]


# ---------------------------------------------------------------- at every instant


def _ops(random: Random, count: int) -> list[Op]:
    """So many operations; in some cases calls end rarely and queues stay full."""

    def draw(n: int) -> int:
        return int(random.random() * n)

    crowded = random.random() < 0.5
    ops: list[Op] = []
    for _ in range(count):
        kind = KINDS[draw(len(KINDS))]
        if crowded and kind in ("end", "cancel", "fail") and random.random() < 0.8:
            kind = "submit" if random.random() < 0.8 else "wait"
        ops.append((kind, draw(8), 1 + draw(4_000), draw(10)))
    return ops


def _always(check: Callable[[Books], None]) -> Property:
    """It holds after each of 150 random operations, on a gateway so small that everything binds."""

    def holds(core: Core, random: Random) -> None:
        upstream = LIMITS if random.random() < 0.5 else UpstreamLimits()
        config = busy_gateway(max_reservation_units=4.5, upstream=upstream)
        books = Books(config, policy=core.policy, admission=core.admission)
        for op in _ops(random, 150):
            books.apply(op)
            check(books)

    holds.__name__ = check.__name__
    return holds


conservation = _always(Books.conservation)
capacity = _always(Books.capacity)
class_floors = _always(Books.floors)
tenant_caps = _always(Books.tenant_caps)
queue_bounds = _always(Books.queue_bounds)


def work_conservation(core: Core, random: Random) -> None:
    """Nothing waits that slots, units and cap would let start."""
    books = Books(
        gateway(classes=WORKING, capacity_units=8, slots=4, gather_after_s=1e6),
        policy=core.policy,
        admission=core.admission,
    )
    for kind, which, size, _ in _ops(random, 150):
        if kind != "refused":
            books.apply((kind, which, size, 0))
            # What a job is expected to take is what it declares.
            estimator = books.scene.admission._estimator  # pyright: ignore[reportPrivateUsage]
            estimator._tenants.clear()  # pyright: ignore[reportPrivateUsage]
            estimator._newcomers.clear()  # pyright: ignore[reportPrivateUsage]
            assert startable(books) == []


# ---------------------------------------------------------------- between tenants


def fairness_bound(core: Core, random: Random) -> None:
    """|Wi/wi - Wj/wj| <= (C+1)(cmax_i/wi + cmax_j/wj) over any interval, for every backlogged pair."""
    weights = [10 ** random.uniform(-1, 1) for _ in range(2 + int(random.random() * 3))]
    policy = core.policy or StartTimeFairQueue
    slots, widest = 1 + int(random.random() * 6), 10 + int(random.random() * 20_000)
    assert broken_bounds(policy, weights, slots, widest, int(random.random() * 2**16)) == 0


class _Pair:
    """Two tenants on one slot, and the work started of each."""

    def __init__(self, core: Core, random: Random) -> None:
        self.weights = {name: 10 ** random.uniform(-0.7, 0.7) for name in ("old", "other")}
        self.cost = {name: 50 + int(random.random() * 1_500) for name in self.weights}
        self.scene = Scene(
            gateway(slots=1, tenant_slots=1, weights=self.weights),
            policy=core.policy,
            admission=core.admission,
        )

    def send(self, name: str, real: int | None = None) -> Request:
        return self.scene.submit(name, self.cost[name], real_tokens=real)

    def end(self) -> Request:
        """The one in service ends."""
        self.scene.now_ns += MS
        request = next(iter(self.scene.running.values()))
        self.scene.end(request)
        return request

    def per_weight(self, name: str) -> float:
        """The largest job of a tenant, per weight."""
        return self.cost[name] / self.weights[name]

    def lead(self, since: int) -> float:
        """How much more the other was started than the old one, per weight, since so many dispatches."""
        count = {name: self.scene.dispatched[since:].count(name) for name in self.weights}
        return count["other"] * self.per_weight("other") - count["old"] * self.per_weight("old")


def no_credit_from_idling(core: Core, random: Random) -> None:
    """A tenant that idled while another was served 300 jobs is then ahead by the bound and the sleeper credit
    at most."""
    pair = _Pair(core, random)
    for name in ("old", "other"):
        pair.send(name)
    while pair.scene.running:
        pair.end()
    serve_backlogged(pair.scene, ["old"], 300, lambda _: pair.cost["old"], depth=2)
    for _ in range(150):
        pair.send("other")
        pair.send("old")
    since = len(pair.scene.dispatched)
    for _ in range(100):
        pair.end()
    bound = 2 * (pair.per_weight("old") + pair.per_weight("other"))
    assert pair.lead(since) <= bound + SLEEPER_CREDIT / pair.weights["other"]


def debt_is_kept(core: Core, random: Random) -> None:
    """A tenant that sends one job after the other, each dearer than it says, gets its weight's share."""
    pair = _Pair(core, random)
    times = 5 + int(random.random() * 40)
    real = pair.cost["other"] * times
    for _ in range(4):
        pair.send("old")
    pair.send("other", real)
    work = dict.fromkeys(pair.weights, 0)
    for _ in range(600):
        ended = pair.end()
        work[ended.tenant] += pair.scene.real_tokens(ended)
        pair.send(ended.tenant, real if ended.tenant == "other" else None)
    lead = work["other"] / pair.weights["other"] - work["old"] / pair.weights["old"]
    bound = 2 * (pair.per_weight("old") + real / pair.weights["other"])
    assert lead <= bound + SLEEPER_CREDIT / pair.weights["other"]


def newcomers_bury_nobody(core: Core, random: Random) -> None:
    """An old tenant is served once for every job of the newcomers before it, though new ones never cease."""
    newcomers, cost = 5 + int(random.random() * 25), 50 + int(random.random() * 450)
    scene = Scene(gateway(slots=1, tenant_slots=1), policy=core.policy, admission=core.admission)
    for _ in range(12):
        scene.submit("old", cost)
    for n in range(newcomers):
        scene.submit(f"new-{n}", cost)
    # Ten fair rounds of all that are active, itself and the one in service included; and once the credit.
    picks = round((newcomers + 2) * (10 + SLEEPER_CREDIT / cost + 3))
    for n in range(picks):
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        scene.end(ended)
        if ended.tenant != "old":
            scene.submit(f"newer-{n}", cost)
    assert scene.dispatched.count("old") >= 10


def no_refund_of_what_was_forgiven(core: Core, random: Random) -> None:
    """A refund after its charge was forgiven buys nothing: half the turns, and the sleeper credit."""
    cost, guess = 50 + int(random.random() * 150), 20_000 + int(random.random() * 40_000)
    scene = Scene(gateway(slots=2, tenant_slots=2), policy=core.policy, admission=core.admission)
    for _ in range(4):
        scene.submit("steady", cost)
    big = scene.submit("over", guess, real_tokens=cost)
    for _ in range(2 * guess // cost):
        scene.now_ns += MS
        scene.end(next(r for r in scene.running.values() if r is not big))
        scene.submit("steady", cost)
    assert big.id in scene.running
    for _ in range(4):
        scene.submit("over", cost)
    scene.end(big)
    before = len(scene.dispatched)
    for _ in range(200):
        scene.now_ns += MS
        ended = next(iter(scene.running.values()))
        scene.end(ended)
        scene.submit(ended.tenant, cost)
    assert scene.dispatched[before:].count("over") <= 100 + SLEEPER_CREDIT / cost + 6


# ---------------------------------------------------------------- in time


def wide_jobs_wait_bounded(core: Core, random: Random) -> None:
    """A job of many units starts within `gather_after_s` and two of the longest calls, whoever else comes."""
    units, gather_ns = 6 + int(random.random() * 10), int(random.random() * 50) * MS
    longest_ns = (5 + int(random.random() * 30)) * MS
    config = gateway(slots=40, tenant_slots=40, capacity_units=units, gather_after_s=gather_ns / NS)
    scene = Scene(config, policy=core.policy, admission=core.admission)
    ends: list[tuple[int, int]] = []
    known = 0

    def note_ends() -> None:
        nonlocal known
        for request in [*scene.running.values()][known:]:
            heappush(ends, (scene.now_ns + 1 + int(random.random() * longest_ns), request.id))
        known = len(scene.running)

    for n in range(2 * units):
        scene.submit(f"small-{n % 3}", 1_000)
    note_ends()
    wide = scene.submit("wide", 1_000 * (units // 2 + int(random.random() * (units // 2))))
    limit_ns = scene.now_ns + gather_ns + 2 * longest_ns
    while scene.fate(wide) == "waiting":
        scene.pass_time(ends[0][0] - scene.now_ns)
        assert scene.now_ns <= limit_ns
        ended = scene.running[heappop(ends)[1]]
        known -= 1
        scene.end(ended)
        scene.submit(ended.tenant, 1_000)
        note_ends()


def nothing_starts_too_late(core: Core, random: Random) -> None:
    """Every call takes 500 ms; once that is known, whatever starts ends before its deadline."""
    scene = Scene(gateway(slots=2, tenant_slots=2), policy=core.policy, admission=core.admission)
    scene.submit("a", workflow="chat")
    _run_500_ms_calls(scene, NS)
    for _ in range(40):
        _run_500_ms_calls(scene, int(random.random() * 300) * MS)
        deadline_ns = scene.now_ns + int(1 + random.random() * 3_000) * MS
        scene.submit("abc"[int(random.random() * 3)], workflow="chat", deadline_ns=deadline_ns)
    _run_500_ms_calls(scene, 20 * NS)
    for event in scene.of(Dispatched):
        deadline_ns = event.request.deadline_ns
        assert deadline_ns is None or event.reservation.granted_ns + 500 * MS <= deadline_ns


def _run_500_ms_calls(scene: Scene, ns: int) -> None:
    """Time passes; calls end 500 ms after their start."""
    until_ns = scene.now_ns + ns
    while scene.running:
        first = next(iter(scene.running.values()))
        ends_ns = scene.reservations[first.id].reservation.granted_ns + 500 * MS
        if ends_ns > until_ns:
            break
        scene.pass_time(ends_ns - scene.now_ns)
        scene.end(first)
    scene.pass_time(until_ns - scene.now_ns)


def same_input_same_decisions(core: Core, random: Random) -> None:
    """Two schedulers that are told the same say the same."""
    ops = _ops(random, 150)

    def log() -> str:
        books = Books(busy_gateway(upstream=LIMITS), policy=core.policy, admission=core.admission)
        for op in ops:
            books.apply(op)
        return hashlib.sha256(repr(books.scene.events).encode()).hexdigest()

    assert log() == log()
