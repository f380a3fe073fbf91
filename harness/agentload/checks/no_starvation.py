"""Is anybody left waiting while the gateway has work to give out?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.fairness import backlog
from agentload.evidence.hidden_queue import calls_by_attempt, waits
from agentload.evidence.history import (
    LogicalRequest,
    counted_phases,
    counted_records,
    logical_requests,
    tenant_names,
)
from agentload.evidence.intervals import Interval, intersect, merge
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, listed, seconds, undecided
from agentload.extensive import Growth
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict

_RETRYABLE = frozenset({0, 408, 429, 500, 502, 503, 504})


class NoStarvation(Check):
    """Passes when no tenant with work waiting goes long without service, and nobody gets nothing at all.

    The longest time in which a tenant had work waiting in the gateway and none of its calls reached the
    provider may be `max_wait_s`. A tenant whose work never waited is not starved, however little it asked
    for. A tenant of 20 requests or more of which not one was answered is, even if each was refused at once;
    requests that can never be served (400, 402, 413 …) do not count.
    """

    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups to look at; by default all."""
    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase."""
    max_wait_s: float = Field(default=5.0, gt=0)

    def scaled(self, by: Growth) -> Self:
        """It is a gap between services, and they are as much rarer as the load is less."""
        return self.model_copy(update={"max_wait_s": self.max_wait_s / min(1.0, by.load)})

    def judge(self, run: Run) -> Verdict:
        """The longest wait between services of each tenant, and the tenants at zero."""
        names = tenant_names(run, self.tenants)
        phases = self.phases or tuple(counted_phases(run))
        requests = [
            request
            for request in logical_requests(counted_records(run))
            if request.phase in phases and not request.unsent
        ]
        asked = {name: [r for r in requests if r.tenant == name] for name in names}
        total = sum(len(mine) for mine in asked.values())
        at_zero = [name for name in names if _gets_nothing(asked[name])]
        gaps = self._gaps(run, names, phases)
        worst = max(gaps, key=lambda gap: gap.length_ns, default=_Gap("", 0, 0))
        details = _details(names, asked, gaps)
        if not enough(total, 50) and not at_zero and worst.length_ns <= self.max_wait_s * NS:
            return undecided(
                self, f"only {total:,} requests in all: at least 20 are needed", n=total, details=details
            )
        because = _because(at_zero, worst)
        failed = bool(at_zero) or worst.length_ns > self.max_wait_s * NS
        return conclude(
            self,
            Status.FAILED if failed else Status.PASSED,
            because,
            # Who got nothing waits to this day: a failure must not stand beside a measure within its bound.
            measured=math.inf if at_zero else worst.length_ns / NS,
            bound=self.max_wait_s,
            unit="s",
            n=total,
            evidence=_evidence(at_zero, asked, gaps),
            details=details,
        )

    def _gaps(self, run: Run, names: Sequence[str], phases: Sequence[str]) -> list[_Gap]:
        """The longest wait between services of every tenant that ever waited."""
        windows = merge(run.profile.phase_window_ns(phase) for phase in phases)
        waiting = backlog(waits(run.records, run.ledger))
        arrivals: dict[str, list[int]] = {name: [] for name in names}
        for calls in calls_by_attempt(run.ledger).values():
            for call in calls:
                if call.tenant in arrivals:
                    arrivals[call.tenant].append(call.arrived_ns)
        return [
            max(_waits_between(name, stretch, sorted(arrivals[name])), key=lambda gap: gap.length_ns)
            for name in names
            if (stretch := intersect(waiting.get(name, []), windows))
        ]

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Strict priority: the low tenant waits six seconds while the other is served."""
        return cls(), _run(low_waits_ms=6_000)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Four requests."""
        return cls(), _run(low_waits_ms=500, high=2)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Half a second of waiting."""
        return cls(), _run(low_waits_ms=500)


class _Gap(msgspec.Struct, frozen=True):
    tenant: str
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def _waits_between(tenant: str, stretch: Sequence[Interval], arrivals: Sequence[int]) -> list[_Gap]:
    """The gaps that a tenant's services leave in the time it was backlogged."""
    gaps: list[_Gap] = []
    position = 0
    for start, end in stretch:
        since = start
        while position < len(arrivals) and arrivals[position] <= end:
            if arrivals[position] > since:
                gaps.append(_Gap(tenant, since, arrivals[position]))
                since = arrivals[position]
            position += 1
        gaps.append(_Gap(tenant, since, end))
    return gaps


def _gets_nothing(requests: Sequence[LogicalRequest]) -> bool:
    servable = [r for r in requests if r.answered or r.last.status in _RETRYABLE]
    return enough(len(servable), 50) and not any(r.answered for r in servable)


def _because(at_zero: Sequence[str], worst: _Gap) -> str:
    if at_zero:
        return f"{listed(at_zero)} got no answer at all"
    if worst.length_ns == 0:
        return "nobody ever had to wait"
    return (
        f"the longest wait between two services of a tenant with work waiting was {seconds(worst.length_ns)} "
        f"({worst.tenant}, from {seconds(worst.start_ns)} on)"
    )


def _evidence(
    at_zero: Sequence[str], asked: dict[str, list[LogicalRequest]], gaps: Sequence[_Gap]
) -> list[Evidence]:
    zeros = [
        Evidence(note=f"{name}: 0 of {len(asked[name]):,} requests answered", seq=asked[name][0].seq)
        for name in at_zero
    ]
    longest = sorted(gaps, key=lambda gap: -gap.length_ns)
    return zeros + [
        Evidence(note=f"{gap.tenant}: no service for {seconds(gap.length_ns)}", at_ns=gap.start_ns)
        for gap in longest
        if gap.length_ns
    ]


def _details(
    names: Sequence[str], asked: dict[str, list[LogicalRequest]], gaps: Sequence[_Gap]
) -> dict[str, Any]:
    longest = {gap.tenant: gap.length_ns / NS for gap in gaps}
    return {
        "tenants": {
            name: {
                "requests": len(asked[name]),
                "answered": sum(request.answered for request in asked[name]),
                "longest_wait_s": finite(longest.get(name, 0.0)),
            }
            for name in names
        }
    }


def _run(*, low_waits_ms: float, high: int = 60) -> Run:
    build = RunBuilder(profile(tenants={"high": 1.0, "low": 1.0}))
    for k in range(high):
        build.answered("high", 100 * k, wait_ms=50)
    build.answered("low", 0, wait_ms=low_waits_ms)
    build.ended("low", 100, Outcome.ABANDONED, after_ms=low_waits_ms - 100)
    return build.run()
