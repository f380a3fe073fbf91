"""Does the difference between tenants stay the same, or grow with time?"""

from __future__ import annotations

from itertools import combinations, cycle, islice
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.contest import Contest, PhaseResult, conclude_phases, contests
from agentload.evidence.fairness import Measure, gap_bound, measure_of, unit_of
from agentload.evidence.statistics import slope
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import finite
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict
from agentload.promises import Truth

LEAST_CALLS = 20
POINTS = 200


class ServiceGap(Check):
    """Passes when the gap in weight-normalised work between backlogged tenants stays bounded and flat.

    Fair queueing keeps |S_i/w_i − S_j/w_j| below (C + 1)(cmax_i/w_i + cmax_j/w_j) over any interval, however
    long; an unfair scheduler's gap grows linearly. So this finds small errors that a share would need a long
    run for. Fails when a pair's gap exceeds its bound over some interval, or when its trend over the stretch
    grows by more than `max_growth` of that bound.
    """

    rests_on = frozenset({Truth.WEIGHTS})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups to compare; by default all that are active in the phase."""
    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase in which all are backlogged at some time."""
    work: Measure | None = None
    """As `weighted-share` has it."""
    max_growth: float = Field(default=0.5, gt=0)
    """Growth of the gap's trend over the stretch, as a part of the bound."""

    def judge(self, run: Run) -> Verdict:
        """The pair of tenants with the worst gap, over all phases."""
        measure = measure_of(run, self.work)
        found, without = contests(run, self.tenants, self.phases, measure)
        unit = f"{unit_of(measure)} per weight"
        return conclude_phases(
            self, [self._result(contest, unit) for contest in found], without, self.phases, unit
        )

    def _result(self, contest: Contest, unit: str) -> PhaseResult:
        pairs = [self._pair(contest, i, j) for i, j in combinations(contest.weights, 2)]
        widest = max(pairs, key=lambda pair: pair.excess)
        contested = len(contest.services) >= LEAST_CALLS and _decidable(contest)
        beyond = any(pair.reach > pair.bound for pair in pairs) and len(contest.services) >= LEAST_CALLS
        if beyond or (contested and widest.excess > 1):
            status = Status.FAILED
        else:
            status = Status.PASSED if contested else Status.INCONCLUSIVE
        because = (
            f"in '{contest.phase}' the gap between {widest.names[0]} and {widest.names[1]} "
            f"{'grew by' if widest.grows else 'reached'} {_amount(widest.measured)} {unit} "
            f"in {contest.seconds:.1f} s; up to {_amount(widest.limit)} is fair"
        )
        if status is Status.INCONCLUSIVE:
            because += f", so that with {len(contest.services):,} calls only a tenant could have had nothing"
        return PhaseResult(
            phase=contest.phase,
            status=status,
            because=because,
            measured=widest.measured,
            bound=widest.limit,
            n=len(contest.services),
            contested=contested,
            evidence=[Evidence(note=because, at_ns=contest.window[1])],
            details=_details(contest, pairs),
        )

    def _pair(self, contest: Contest, i: str, j: str) -> _Pair:
        bound = gap_bound(
            contest.in_service, contest.costs[i], contest.weights[i], contest.costs[j], contest.weights[j]
        )
        gaps = _gaps(contest, i, j)
        values = [gap for _, gap in gaps]
        bound = max(bound, 1e-9)  # tenants that asked for nothing at all have no gap either
        reach = max(values) - min(values)
        step = max(1, len(gaps) // POINTS)
        trend = slope([at for at, _ in gaps[::step]], values[::step])
        growth = abs(trend) * contest.seconds
        grows = growth / (self.max_growth * bound) > max(1.0, reach / bound)
        return _Pair(
            names=(i, j),
            measured=growth if grows else reach,
            limit=self.max_growth * bound if grows else bound,
            grows=grows,
            reach=reach,
            growth=growth,
            bound=bound,
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Weights 5, 3 and 2, and every lane gets a third (one turn each)."""
        return cls(), _run("abc", 300)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Thirty calls with four in service at once: any order would be within the bound."""
        return cls(), _run("abc", 30)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Weights 5, 3 and 2 served in turns of ten."""
        return cls(), _run("abacabacab", 300)


class _Pair(msgspec.Struct, frozen=True):
    names: tuple[str, str]
    measured: float
    limit: float
    grows: bool
    reach: float
    growth: float
    bound: float

    @property
    def excess(self) -> float:
        return self.measured / self.limit


def _amount(work: float) -> str:
    """Tokens are many; seconds are few."""
    return f"{work:.0f}" if work >= 100 else f"{work:.3g}"


def _gaps(contest: Contest, i: str, j: str) -> list[tuple[float, float]]:
    """(seconds, S_i/w_i − S_j/w_j) from the stretch's start on, after every service of either."""
    signed = {i: 1 / contest.weights[i], j: -1 / contest.weights[j]}
    gap = 0.0
    gaps = [(0.0, 0.0)]
    for service in contest.services:
        factor = signed.get(service.tenant)
        if factor is not None:
            gap += factor * service.work
            gaps.append(((service.at_ns - contest.window[0]) / NS, gap))
    gaps.append((contest.seconds, gap))
    return gaps


def _decidable(contest: Contest) -> bool:
    """False when a tenant could get nothing at all without any pair exceeding its bound."""
    fair = contest.work / sum(contest.weights.values())
    widest = max(
        gap_bound(
            contest.in_service, contest.costs[i], contest.weights[i], contest.costs[j], contest.weights[j]
        )
        for i, j in combinations(contest.weights, 2)
    )
    return widest < fair


def _details(contest: Contest, pairs: list[_Pair]) -> dict[str, Any]:
    widest = max(pairs, key=lambda pair: pair.excess)
    gaps = _gaps(contest, *widest.names)
    step = max(1, len(gaps) // POINTS)
    return {
        "start_s": contest.window[0] / NS,
        "end_s": contest.window[1] / NS,
        "in_service": contest.in_service,
        "pairs": [
            {
                "tenants": list(pair.names),
                "gap": finite(pair.reach, 1),
                "growth": finite(pair.growth, 1),
                "bound": finite(pair.bound, 1),
            }
            for pair in sorted(pairs, key=lambda pair: -pair.excess)[:20]
        ],
        "widest_over_time": [
            [finite(contest.window[0] / NS + at_s), finite(gap, 1)] for at_s, gap in gaps[::step]
        ],
    }


def _run(turns: str, calls: int) -> Run:
    build = RunBuilder(profile(tenants={"a": 5.0, "b": 3.0, "c": 2.0}, phases={"load": calls / 50}))
    build.dispatches(islice(cycle(turns), calls), every_ms=20)
    for tenant in "abc":
        build.ended(tenant, calls * 20 - 500, Outcome.UNFINISHED, after_ms=500)
    return build.run()
