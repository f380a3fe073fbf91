"""Scenes that show what a policy does to tenants: each plays one, and answers with a number or two."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import combinations
from random import Random
from typing import NamedTuple

from agentload.scheduler.admission import Admission, Request
from agentload.scheduler.fair_queue import FairQueue
from scheduler_kit import MS, NS, Scene, gateway, serve_backlogged

WEIGHTS = {"a": 5.0, "b": 3.0, "c": 2.0}


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


class Tally:
    """Work started per tenant since the interval began, kept from the events alone, and the largest gap."""

    def __init__(self, scene: Scene, weights: dict[str, float]) -> None:
        self.scene = scene
        self.weights = weights
        self.gaps = dict.fromkeys(combinations(weights, 2), (0.0, 0.0))
        """Least and largest difference of each pair: between the two lies the gap over some interval."""
        self._seen = len(scene.events)
        self._started = dict.fromkeys(weights, 0)

    def update(self) -> None:
        for event in self.scene.events[self._seen :]:
            self._started[event.request.tenant] += event.request.max_output_tokens or 0
        self._seen = len(self.scene.events)
        for (one, other), (least, most) in self.gaps.items():
            gap = self._started[one] / self.weights[one] - self._started[other] / self.weights[other]
            self.gaps[one, other] = (min(gap, least), max(gap, most))


class Gap(NamedTuple):
    """Two tenants that always had work waiting, in tokens per weight."""

    reach: float
    """The largest |Wi/wi - Wj/wj| over any interval."""
    dearest: float
    """cmax_i/wi + cmax_j/wj."""
    quantum: float
    """The largest cmax/w of all tenants."""


def gaps(policy: type[FairQueue], weights: list[float], slots: int, widest: int, seed: int) -> list[Gap]:
    """Of every pair, over 300 jobs of up to `widest` tokens that end in any order."""
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
    per_weight = {name: cmax[name] / named[name] for name in named}
    quantum = max(per_weight.values())
    return [
        Gap(most - least, per_weight[i] + per_weight[j], quantum)
        for (i, j), (least, most) in tally[0].gaps.items()
    ]


def broken_bounds(policy: type[FairQueue], weights: list[float], slots: int, widest: int, seed: int) -> int:
    """For how many pairs of tenants the gap exceeded (C+1)(cmax_i/wi + cmax_j/wj)."""
    return sum(g.reach > (slots + 1) * g.dearest for g in gaps(policy, weights, slots, widest, seed))


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


TOKENS_PER_S = 50
REPORT_EVERY = 128
"""Tokens between two progress reports of a streamed call."""


class UnknownCosts:
    """Three tenants of weights 5, 3 and 2 that always have work waiting, whose answers nobody can foresee.

    32 calls at once, 50 tokens a second each; outputs lognormal (median 245, mean 400) cut at 4,096 tokens,
    the second tenant's three times as long; half of the requests declare 4,096 tokens, the others nothing.
    """

    def __init__(
        self,
        policy: type[FairQueue] | None = None,
        admission: type[Admission] = Admission,
        *,
        streamed: bool = True,
        seed: int = 1,
    ) -> None:
        self.scene = Scene(
            gateway(slots=32, tenant_slots=32, weights=WEIGHTS), policy=policy, admission=admission
        )
        self.streamed = streamed
        self._random = Random(seed)
        self._due: list[tuple[int, int, int]] = []
        """(when, request id, tokens by then)."""
        self._known: set[int] = set()
        for _ in range(40):
            for tenant in WEIGHTS:
                self._send(tenant)
        self._note_starts()
        self._before = self._produced()

    def play(self, seconds: float) -> None:
        """So much virtual time."""
        until_ns = round(seconds * NS)
        while self._due[0][0] <= until_ns:
            at_ns, id_, tokens = heappop(self._due)
            self.scene.now_ns = max(self.scene.now_ns, at_ns)
            request = self.scene.running[id_]
            if tokens < self.scene.real_tokens(request):
                self.scene.admission.progress(self.scene.now_ns, id_, tokens)
                self._next_report(request, tokens)
            else:
                self.scene.end(request)
                self._send(request.tenant)
                self._note_starts()
        self.scene.now_ns = until_ns

    def count_from_here(self) -> None:
        """What has been produced so far is not to count."""
        self._before = self._produced()

    def share_error(self) -> float:
        """The largest deviation of a share of the tokens since then, as a part of its entitlement."""
        produced = {tenant: tokens - self._before[tenant] for tenant, tokens in self._produced().items()}
        total, weight = sum(produced.values()), sum(WEIGHTS.values())
        return max(abs(produced[t] / total / (WEIGHTS[t] / weight) - 1) for t in WEIGHTS)

    def _produced(self) -> dict[str, float]:
        """Tokens so far, those of unfinished calls included."""
        tokens = {tenant: float(self.scene.work[tenant]) for tenant in WEIGHTS}
        for request in self.scene.running.values():
            since_ns = self.scene.reservations[request.id].reservation.granted_ns
            tokens[request.tenant] += (self.scene.now_ns - since_ns) / NS * TOKENS_PER_S
        return tokens

    def _send(self, tenant: str) -> None:
        tokens = 1 + int(self._random.lognormvariate(5.5, 1.0) * (3 if tenant == "b" else 1))
        declared = 4_096 if self._random.random() < 0.5 else None
        self.scene.submit(
            tenant, real_tokens=min(tokens, 4_096), max_output_tokens=declared, workflow="agent"
        )

    def _note_starts(self) -> None:
        for request in self.scene.running.values():
            if request.id not in self._known:
                self._known.add(request.id)
                self._next_report(request, 0)

    def _next_report(self, request: Request, tokens: int) -> None:
        real = self.scene.real_tokens(request)
        then = min(real, tokens + REPORT_EVERY) if self.streamed else real
        started_ns = self.scene.reservations[request.id].reservation.granted_ns
        heappush(self._due, (started_ns + then * NS // TOKENS_PER_S, request.id, then))
