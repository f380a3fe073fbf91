"""How much a target may be asked to bear at all, whatever a profile says. Pure.

A profile that wants more is refused before it starts; what cannot be known before (retries) is held back
while it runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import msgspec

from agentload.errors import UsageError
from agentload.model import NS, Arrival, Plan, Profile
from agentload.plan import ClosedLoops

MAX_ANSWER_BYTES = 8 * 2**20
"""Hundreds of answers may be open at once, each with so much."""


_SLACK_NS = 20_000_000
"""The second that is counted is longer by so much: not all take as long to the other end."""
_UNNOTICED_NS = 1_000_000


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """What is never exceeded. None: no cap."""

    rate: float | None = None
    """Requests sent in any second, retries included (questions after a job come on top)."""
    connections: int | None = None
    """Open at once, idle ones included, over all workers."""
    seconds: float | None = None
    """Of load, and of waiting for the last answers."""
    answer_bytes: int | None = None
    """Of one answer's body; None: 8 MiB, and never more."""

    def but_for(self, given: Caps) -> Caps:
        """With what the user has said instead."""
        said = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
        return msgspec.structs.replace(self, **said)


HERE = Caps()
"""This machine may load itself as it can."""
ELSEWHERE = Caps(rate=1_000.0, connections=2_000, seconds=900.0)
"""Somebody's network is in between, and perhaps others' work is at the other end."""


def refuse_beyond(caps: Caps, profile: Profile, plan: Plan) -> None:
    """Raises UsageError with a line for each cap that the plan is known to exceed."""
    lines = [*_too_fast(caps, profile, plan), *_too_many(caps, profile, plan), *_too_long(caps, profile)]
    if lines:
        raise UsageError(*lines)


def busiest_second(arrivals: Iterable[Arrival]) -> tuple[int, int]:
    """(requests, when it begins) of the second in which most are due; (0, 0) without any."""
    most, at_ns = 0, 0
    window: deque[int] = deque()
    for arrival in arrivals:
        window.append(arrival.due_ns)
        while window[0] <= arrival.due_ns - NS:
            window.popleft()
        if len(window) > most:
            most, at_ns = len(window), window[0]
    return most, at_ns


class Bucket:
    """Lets a number of requests through in any second, and a second's worth at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._level = max(1.0, rate)
        self._at_ns = 0

    def take(self, now_ns: int) -> bool:
        """Whether one more may go now."""
        passed_ns = max(0, now_ns - self._at_ns)
        self._at_ns = max(self._at_ns, now_ns)
        self._level = min(max(1.0, self._rate), self._level + passed_ns * self._rate / NS)
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True


class Allowance:
    """What may be sent in any second: what is planned goes as planned, everything else gets what that leaves.

    Never more than the rate is sent in any second, unless a stall of the generator has made what was planned
    late: that is caught up with, within a second's worth.
    """

    def __init__(self, rate: float, planned_ns: Iterable[int] = ()) -> None:
        """`planned_ns`: when that is due, in order. Below one a second a longer time is looked at."""
        self._most = max(1, math.floor(rate))
        self._span_ns = round(NS / min(1.0, rate)) + _SLACK_NS
        self._bucket = Bucket(rate)
        self._kept = self._busiest(planned_ns)
        self._planned: deque[int] = deque()
        self._others: deque[int] = deque()
        """When the latest were sent."""

    def plan(self, now_ns: int) -> bool:
        """Whether one that was planned may go now."""
        if not self._bucket.take(now_ns):
            return False
        self._planned.append(now_ns)
        return True

    def take(self, now_ns: int) -> bool:
        """Whether another one may go now: a retry, a user's next request."""
        if self.wait_ns(now_ns):
            return False
        self._others.append(now_ns)
        return True

    def move(self, taken_ns: int, sent_ns: int) -> bool:
        """One that was let go at `taken_ns` was sent later; False: by no more than nothing."""
        if sent_ns - taken_ns <= _UNNOTICED_NS or taken_ns not in self._others:
            return False
        self._others.remove(taken_ns)
        self._others.append(sent_ns)
        return True

    def wait_ns(self, now_ns: int) -> int:
        """How long such a one must wait at least before it asks again; 0: it may go."""
        for sent in (self._planned, self._others):
            while sent and sent[0] <= now_ns - self._span_ns:
                sent.popleft()
        cell = now_ns // self._span_ns
        if len(self._others) + max(len(self._planned), self._kept.get(cell, 0)) < self._most:
            return 0
        frees_ns = [sent[0] + self._span_ns for sent in (self._planned, self._others) if sent]
        return min([(cell + 1) * self._span_ns, *frees_ns]) - now_ns

    def _busiest(self, planned_ns: Iterable[int]) -> dict[int, int]:
        """For each span of the clock, how many are planned in the busiest span that touches it, at most."""
        kept: dict[int, int] = {}
        window: deque[int] = deque()
        for due_ns in planned_ns:
            window.append(due_ns)
            while window[0] <= due_ns - self._span_ns:
                window.popleft()
            for cell in range(window[0] // self._span_ns - 1, due_ns // self._span_ns + 2):
                kept[cell] = max(kept.get(cell, 0), len(window))
        return kept


def _too_fast(caps: Caps, profile: Profile, plan: Plan) -> Iterable[str]:
    most, at_ns = busiest_second(plan.arrivals)
    if caps.rate is not None and most > caps.rate:
        yield (
            f"{profile.name}: sends {most:,} requests in the second from {at_ns / NS:.0f} s on, "
            f"and the cap is {caps.rate:,.0f}: {_mend('rate', most)}, or less load (--scale, --set)"
        )


def _too_many(caps: Caps, profile: Profile, plan: Plan) -> Iterable[str]:
    own = sum(tenant.locust.users for tenant in profile.tenants if tenant.locust is not None)
    users = len(ClosedLoops(profile, plan).users) + own
    if caps.connections is not None and users > caps.connections:
        yield (
            f"{profile.name}: {users:,} users are at work at once, "
            f"and the cap is {caps.connections:,} connections: {_mend('connections', users)}, or fewer users"
        )


def _too_long(caps: Caps, profile: Profile) -> Iterable[str]:
    lasts_s = profile.duration_ns / NS + profile.drain_s
    if caps.seconds is not None and lasts_s > caps.seconds:
        yield (
            f"{profile.name}: lasts {lasts_s:,.0f} s with its drain, "
            f"and the cap is {caps.seconds:,.0f} s: {_mend('seconds', round(lasts_s + 0.5))}, or --quick"
        )


def _mend(name: str, needed: int) -> str:
    return f"--max-{name} {needed} if its owner agrees"
