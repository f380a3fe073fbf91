"""Seed → every arrival, before the clock starts; and the jobs of closed loops, which can only be keyed.

Each tenant, phase and purpose has a random stream of its own, `Random(f"{seed}/{tenant}/{purpose}/{phase}")`:
adding a tenant, or lengthening a phase, leaves all other arrivals as they were.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import NamedTuple

import msgspec

from agentload import arrivals, workloads
from agentload.model import NS, Arrival, Job, Phase, Plan, Profile, Tenant

STAGGER_S = 0.25
"""Closed-loop users begin spread over so long (or over their think time, if longer), not in step."""
PAUSE_AFTER_FAILURE_S = 0.1
"""A user whose job was not answered waits at least so long: nobody sends the next at once, and a gateway that
refuses in a millisecond would otherwise be asked a thousand times a second by every user."""


class _Draw(NamedTuple):
    """One arrival before it has a number."""

    due_ns: int
    tenant: int
    """Place in the profile."""
    job: Job


def draw(profile: Profile, seed: int) -> Plan:
    """The plan: equal for equal profiles and seeds in every process and on every Python 3.11+."""
    planned: list[tuple[_Draw, str]] = []
    drawn: dict[tuple[int, str], list[_Draw]] = {}
    for phase in profile.phases:
        window = profile.phase_window_ns(phase.name)
        for index, tenant in enumerate(profile.tenants):
            if tenant.arrivals is not None and is_active(tenant, phase.name):
                draws = _replayed(profile, phase, drawn.get((index, phase.replays or "")), window[0])
                if draws is None:
                    draws = _fresh(seed, index, tenant, phase, window)
                drawn[index, phase.name] = draws
                planned += [(one, phase.name) for one in draws]
    planned.sort(key=lambda item: item[0][:2])
    ordered = tuple(_arrival(profile.tenants, seq, one, phase) for seq, (one, phase) in enumerate(planned))
    return Plan(
        seed=seed,
        arrivals=ordered,
        closed_users=sum(tenant.users or 0 for tenant in profile.tenants),
        fingerprint=_fingerprint(profile, seed, ordered),
    )


def is_active(tenant: Tenant, phase: str) -> bool:
    """Whether a tenant sends in a phase."""
    return not tenant.during or phase in tenant.during


def shard(plan: Plan, index: int, n: int) -> tuple[Arrival, ...]:
    """Every n-th arrival from `index` on: the shards of 0..n-1 are the plan, without overlap."""
    return plan.arrivals[index::n]


def _fresh(seed: int, index: int, tenant: Tenant, phase: Phase, window: tuple[int, int]) -> list[_Draw]:
    assert tenant.arrivals is not None
    assert tenant.workload is not None
    when = Random(f"{seed}/{tenant.name}/arrivals/{phase.name}")
    what = Random(f"{seed}/{tenant.name}/jobs/{phase.name}")
    workload = workloads.make(tenant.workload)
    times = arrivals.make(tenant.arrivals).times_ns(*window, when)
    return [_Draw(due_ns, index, workload.draw(what, due_ns)) for due_ns in times]


def _replayed(
    profile: Profile, phase: Phase, earlier: list[_Draw] | None, start_ns: int
) -> list[_Draw] | None:
    """The earlier phase's arrivals, shifted; None where there is nothing to replay."""
    if phase.replays is None or earlier is None:
        return None
    shift_ns = start_ns - profile.phase_window_ns(phase.replays)[0]
    return [one._replace(due_ns=one.due_ns + shift_ns) for one in earlier]


def _arrival(tenants: tuple[Tenant, ...], seq: int, one: _Draw, phase: str) -> Arrival:
    tenant = tenants[one.tenant]
    return Arrival(
        seq=seq,
        tenant=tenant.name,
        service_class=tenant.service_class,
        phase=phase,
        due_ns=one.due_ns,
        job=one.job,
        model=tenant.model,
    )


def _fingerprint(profile: Profile, seed: int, planned: tuple[Arrival, ...]) -> str:
    """SHA-256 over the seed, the arrivals, what closed loops will draw from, and users' own code."""
    closed = [
        [t.name, t.service_class, t.users, t.think_s, windows(profile, t), t.workload.model_dump()]
        for t in profile.tenants
        if t.users is not None and t.workload is not None
    ]
    digest = sha256(json.dumps([seed, closed], sort_keys=True).encode())
    digest.update(msgspec.json.encode(planned))
    orders = [[t.name, t.job.model_dump()] for t in profile.tenants if t.job is not None]
    if orders:
        digest.update(json.dumps(orders, sort_keys=True).encode())
    models = [[t.name, t.model] for t in profile.tenants if t.model is not None and t.users is not None]
    if models:
        digest.update(json.dumps(models, sort_keys=True).encode())
    homegrown = [
        [t.name, t.service_class, windows(profile, t), t.locust.model_dump(exclude={"file"})]
        for t in profile.tenants
        if t.locust is not None
    ]
    if homegrown:
        digest.update(json.dumps(homegrown, sort_keys=True).encode())
    return digest.hexdigest()


# --------------------------------------------------------------------------- closed loops


@dataclass(frozen=True)
class ClosedUser:
    """One user of a closed loop."""

    index: int
    """Its number over all tenants, in profile order."""
    number: int
    """Its number within its tenant: random streams go by this, so that other tenants do not matter."""
    tenant: Tenant


def closed_users(profile: Profile) -> tuple[ClosedUser, ...]:
    """All closed-loop users in global order; worker i of n plays those with `index % n == i`."""
    numbered = [(number, tenant) for tenant in profile.tenants for number in range(tenant.users or 0)]
    return tuple(ClosedUser(index, number, tenant) for index, (number, tenant) in enumerate(numbered))


class _Loop(NamedTuple):
    """What all users of a tenant share, looked up once: a field of a profile costs three plain attributes."""

    tenant: str
    service_class: str
    think_s: float
    windows: list[tuple[int, int]]
    workload: workloads.Workload
    job: Job | None
    """The one job that they ever send; None where jobs differ."""
    model: str | None


class ClosedLoops:
    """What closed-loop users send and when, given how their last job went. Stateless: all draws are keyed."""

    def __init__(self, profile: Profile, plan: Plan) -> None:
        self.users = closed_users(profile)
        self._seed = plan.seed
        self._first_seq = len(plan.arrivals)
        by_tenant = {t.name: _loop(profile, t) for t in profile.tenants if t.users is not None}
        self._loops = [by_tenant[user.tenant.name] for user in self.users]
        self._runs = [f"{user.tenant.name}-run-{user.number}" for user in self.users]
        self._phases = [phase.name for phase in profile.phases]
        self._starts = [start for start, _ in _phase_windows(profile)]

    def first_due_ns(self, user: ClosedUser) -> int | None:
        """When the user sends its first job; None when its tenant is active in no phase."""
        return self._in_window(user, 0)

    def next_due_ns(self, user: ClosedUser, ended_ns: int, *, answered: bool) -> int | None:
        """When the user sends again after its last attempt ended: after thinking, or when its tenant's next
        phase begins; None when there is none left."""
        think_s = self._loops[user.index].think_s
        pause_s = think_s if answered else max(think_s, PAUSE_AFTER_FAILURE_S)
        return self._in_window(user, ended_ns + round(pause_s * NS))

    def arrival(self, user: ClosedUser, k: int, due_ns: int) -> Arrival:
        """The user's k-th logical request (from 0). Its job depends on user and k alone."""
        loop = self._loops[user.index]
        return Arrival(
            seq=self._first_seq + k * len(self.users) + user.index,
            tenant=loop.tenant,
            service_class=loop.service_class,
            phase=self._phases[bisect_right(self._starts, due_ns) - 1],
            due_ns=due_ns,
            job=loop.job or self._drawn(loop, user, k, due_ns),
            run=self._runs[user.index],
            model=loop.model,
        )

    def _drawn(self, loop: _Loop, user: ClosedUser, k: int, due_ns: int) -> Job:
        random = Random(f"{self._seed}/{loop.tenant}/jobs/{user.number}/{k}")
        return loop.workload.draw(random, due_ns)

    def _in_window(self, user: ClosedUser, at_ns: int) -> int | None:
        """The earliest instant from `at_ns` on in which the tenant is active."""
        for start_ns, end_ns in self._loops[user.index].windows:
            earliest = start_ns + self._stagger_ns(user) if at_ns <= start_ns else at_ns
            if earliest < end_ns:
                return earliest
        return None

    def _stagger_ns(self, user: ClosedUser) -> int:
        spread_s = max(user.tenant.think_s, STAGGER_S)
        return round(Random(f"{self._seed}/{user.tenant.name}/start/{user.number}").random() * spread_s * NS)


def _loop(profile: Profile, tenant: Tenant) -> _Loop:
    assert tenant.workload is not None
    workload = workloads.make(tenant.workload)
    active = windows(profile, tenant)
    return _Loop(
        tenant.name,
        tenant.service_class,
        tenant.think_s,
        active,
        workload,
        job=workload.always(),
        model=tenant.model,
    )


def _phase_windows(profile: Profile) -> list[tuple[int, int]]:
    return [profile.phase_window_ns(phase.name) for phase in profile.phases]


def windows(profile: Profile, tenant: Tenant) -> list[tuple[int, int]]:
    """When a tenant is active, phases that follow one another joined."""
    joined: list[tuple[int, int]] = []
    for phase, (start, end) in zip(profile.phases, _phase_windows(profile), strict=True):
        if is_active(tenant, phase.name):
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
    return joined
