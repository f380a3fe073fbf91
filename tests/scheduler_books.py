"""What an outsider knows of a scheduler, kept from submissions and events alone, and what must hold of it.

An oracle that a person can check: it adds up lists anew each time and shares no code with the scheduler.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from agentload.scheduler.admission import Expired, Request, Reservation
from agentload.scheduler.config import ClassConfig, GatewayConfig, UpstreamLimits
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies import SEAM
from agentload.scheduler.reasons import Reason
from scheduler_kit import MS, NS, Scene, gateway

TENANTS = ("a", "b", "c", "d")
CLASSES = {
    "guaranteed": ClassConfig(
        nominal_share=0.5, min_units=3, max_queue=6, tenant_max_queue=3, max_queue_units=20
    ),
    "batch": ClassConfig(nominal_share=0.5, min_units=1, max_queue=4, max_wait_s=5, max_queue_bytes=4_000),
}

Op = tuple[str, int, int, int]
KINDS = (
    *("submit", "submit", "submit", "end", "end", "fail", "cancel", "progress", "wait"),
    *("refused", "accepted", "retry"),
)
OPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(1, 4_000), st.integers(0, 9)),
    max_size=60,
)


class Books:
    """A scene, and what an outsider knows of it: who is where, from submissions and events."""

    def __init__(self, config: GatewayConfig, *, policy: type[FairQueue] | None = None, **scene: Any) -> None:
        self.scene = Scene(config, policy=policy, **scene)
        self.policy = SEAM.get(config.policy)
        """Whose safeguards must hold: those of the named one, also where a broken one takes its place."""
        self.config = config
        self.waiting: dict[int, Request] = {}
        self.model = ""
        """Of what is submitted next."""
        self.cancelled = self.completed = self.failed = 0
        self._seen = 0

    def apply(self, op: Op) -> None:
        """Do something, chosen by numbers, and bring the books up to date."""
        kind, which, size, more = op
        scene = self.scene
        known = [*self.waiting.values(), *scene.running.values()]
        running = [*scene.running.values()]
        if kind == "submit":
            request = scene.submit(
                TENANTS[which % 4],
                size,
                service_class="batch" if which >= 4 else "guaranteed",
                workflow=f"kind-{more % 3}",
                model=self.model,
                body_bytes=size,
                text_chars=size * (more % 5),
                deadline_ns=scene.now_ns + size * MS if more >= 7 else None,
                real_tokens=size * (1 + more) // 4,
            )
            self.waiting[request.id] = request
        elif kind == "wait":
            scene.pass_time(size * MS)
        elif kind == "cancel" and known:
            self.cancelled += 1
            gone = known[which % len(known)]
            self.waiting.pop(gone.id, None)
            scene.cancel(gone)
        elif running:
            self._on_running(kind, running[which % len(running)], size)
        self._read_events()

    def _on_running(self, kind: str, request: Request, size: int) -> None:
        scene = self.scene
        if kind in ("end", "fail"):
            self.completed += kind == "end"
            self.failed += kind == "fail"
            scene.end(request, ok=kind == "end")
        elif kind == "progress":
            scene.admission.progress(scene.now_ns, request.id, size)
            scene.poll()
        elif kind == "refused":
            scene.admission.provider_refused(scene.now_ns, request.id, size * MS if size % 2 else None)
            scene.poll()
        elif kind == "accepted":
            scene.admission.provider_accepted(request.id)
            scene.poll()
        elif kind == "retry":
            self._retry(request)

    def _retry(self, request: Request) -> None:
        """The call failed: it waits again, or not."""
        scene = self.scene
        del scene.running[request.id]
        if scene.admission.retry(scene.now_ns, request.id, input_tokens=0, output_tokens=0):
            self.waiting[request.id] = request
        else:
            self.failed += 1
        scene.poll()

    def _read_events(self) -> None:
        for event in self.scene.events[self._seen :]:
            # A lease can only run out of what runs, and everything else only happens to what waits.
            if not (isinstance(event, Expired) and event.reason is Reason.LEASE_EXPIRED):
                del self.waiting[event.request.id]
            else:
                self.failed += 1
        self._seen = len(self.scene.events)

    # -- what must hold

    def check(self) -> None:
        """Everything that must hold at any instant."""
        self.conservation()
        if self.policy.admits:
            self.capacity()
            self.floors()
            self.tenant_caps()
            self.queue_bounds()
        due_ns = self.scene.admission.next_wakeup_ns()
        assert due_ns is None or due_ns > self.scene.now_ns

    def conservation(self) -> None:
        """Nothing is lost and nothing is counted twice."""
        count, snapshot = self.scene.snapshot.counters, self.scene.snapshot
        refused = [e for e in self.scene.refusals if e.reason is not Reason.EVICTED]
        expired = [e for e in self.scene.of(Expired) if e.reason is not Reason.LEASE_EXPIRED]
        assert snapshot.waiting == len(self.waiting)
        assert snapshot.running == len(self.scene.running)
        assert count.refused == len(refused) == sum(count.refused_by.values())
        assert count.evicted == len(self.scene.refusals) - len(refused)
        assert count.expired == len(expired)
        assert (count.completed, count.failed) == (self.completed, self.failed)
        assert count.cancelled == self.cancelled
        ended = count.completed + count.failed + count.expired + count.cancelled + count.evicted
        assert count.offered == count.refused + count.admitted
        assert count.admitted == ended + snapshot.waiting + snapshot.running

    def held(self) -> list[Reservation]:
        """What was granted and has not been given back."""
        return [self.scene.reservations[id_].reservation for id_ in self.scene.running]

    def capacity(self) -> None:
        """What is reserved is what was granted: no more than there is, and never negative."""
        [config] = self.config.pools.values()
        [pool] = self.scene.snapshot.pools.values()
        held = self.held()
        assert pool.reserved_units == pytest.approx(sum(r.units for r in held), abs=1e-6)
        assert pool.reserved_slots == len(held)
        assert 0 <= pool.reserved_units <= config.capacity_units
        assert 0 <= pool.reserved_slots <= config.slots

    def floors(self) -> None:
        """What a class lacks of its floor is free."""
        [config] = self.config.pools.values()
        units, by_class = 0, Counter[str]()
        for reservation in self.held():
            units += round(reservation.units * 1e6)
            by_class[reservation.service_class] += round(reservation.units * 1e6)
        unmet = sum(max(0, round(c.min_units * 1e6) - by_class[name]) for name, c in config.classes.items())
        assert round(config.capacity_units * 1e6) - units >= unmet

    def tenant_caps(self) -> None:
        """No tenant holds more slots than its cap."""
        [config] = self.config.pools.values()
        if self.policy.tenant_cap:
            cap = config.tenant_slots or (config.slots + 1) // 2
            assert all(n <= cap for n in Counter(r.tenant for r in self.held()).values())

    def queue_bounds(self) -> None:
        """Number, bytes, units and age of what waits, of each class and of each tenant in it."""
        [config] = self.config.pools.values()
        for name, bounds in config.classes.items():
            waiting = [r for r in self.waiting.values() if r.service_class == name]
            assert len(waiting) <= bounds.max_queue
            assert sum(r.body_bytes for r in waiting) <= bounds.max_queue_bytes
            shown = self.scene.snapshot.classes[name]
            assert shown.waiting_units <= (bounds.max_queue_units or 1e9)
            oldest = min((r.arrived_ns for r in waiting), default=self.scene.now_ns)
            assert shown.oldest_wait_ns == self.scene.now_ns - oldest
            assert shown.oldest_wait_ns < bounds.max_wait_s * NS
            if self.policy.tenant_bound:
                most = bounds.tenant_max_queue or bounds.max_queue // 2
                assert all(n <= most for n in Counter(r.tenant for r in waiting).values())


def busy_gateway(policy: str = "sfq", **more: Any) -> GatewayConfig:
    """Small enough for everything to bind."""
    return gateway(policy=policy, classes=CLASSES, capacity_units=8, slots=4, lease_s=20, **more)


LIMITS = UpstreamLimits(tokens_per_minute=60_000, requests_per_minute=240, bucket_s=10)


def drain(books: Books) -> None:
    """Let everything end; nothing may be left behind."""
    for _ in range(500):
        if not books.scene.running and not books.waiting:
            break
        books.apply(("end", 0, 1, 0) if books.scene.running else ("wait", 0, 2_000, 0))
        books.check()
    snapshot = books.scene.snapshot
    assert (snapshot.waiting, snapshot.running) == (0, 0)
    assert snapshot.tenants == {}
    assert all(p.reserved_units == 0 and p.reserved_slots == 0 for p in snapshot.pools.values())


def random_ops(seed: int, count: int) -> list[Op]:
    """Far longer than what Hypothesis draws, so that queues fill up and estimates settle."""
    random = Random(seed)

    def draw(n: int) -> int:
        return int(random.random() * n)

    return [(KINDS[draw(len(KINDS))], draw(8), 1 + draw(4_000), draw(10)) for _ in range(count)]


def startable(books: Books) -> list[Request]:
    """Heads of lanes that slots, units (save what is kept for other classes) and cap would let start."""
    [config] = books.config.pools.values()
    held = books.held()
    used = sum(round(r.units * 1e6) for r in held)
    in_flight = Counter(r.tenant for r in held)
    cap = config.tenant_slots or (config.slots + 1) // 2
    by_class = Counter[str]()
    for reservation in held:
        by_class[reservation.service_class] += round(reservation.units * 1e6)
    running_in = Counter(r.service_class for r in held)
    heads: dict[tuple[str, str], Request] = {}
    for request in books.waiting.values():
        heads.setdefault((request.service_class, request.tenant), request)
    found: list[Request] = []
    for (name, tenant), head in heads.items():
        kept = sum(
            max(0, round(c.min_units * 1e6) - by_class[other])
            for other, c in config.classes.items()
            if other != name
        )
        room = round(config.capacity_units * 1e6) - used - kept
        kept_slots = sum(
            max(0, int(c.min_units / config.capacity_units * config.slots) - running_in[other])
            for other, c in config.classes.items()
            if other != name
        )
        fits = (head.max_output_tokens or 0) * 1_000 <= room
        if fits and config.slots - len(held) > kept_slots and in_flight[tenant] < cap:
            found.append(head)
    return found


WORKING = {
    "guaranteed": ClassConfig(nominal_share=0.5, min_units=2, max_queue=50),
    "batch": ClassConfig(nominal_share=0.5, max_queue=50),
}
