"""Do tenants get work in proportion to their weights?"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.contest import Contest, PhaseResult, conclude_phases, contests
from agentload.evidence.fairness import Measure, jain, measure_of, served_work, share_bounds, shares
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import finite
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict
from agentload.promises import Truth

LEAST_CALLS = 20
MOST_WINDOWS = 60


class WeightedShare(Check):
    """Passes when backlogged tenants are served work in proportion to their weights.

    Judged in the longest stretch of each phase in which all compared tenants had work waiting: a tenant that
    asks for less than its share is not a victim. Measured is the largest difference between a tenant's share
    of the served work and its weight's share. Up to `tolerance_points` passes. What fails is more than fair
    queueing itself may be off in such a stretch, (C + 1)/work · [(1 − p)·cmax + p·Σ cmax of the others] with
    C calls in service: no fair gateway exceeds that. Between the two nothing follows, nor from a stretch so
    short that the bound is a tenant's whole share. Work is tokens (or what the gateway is declared to divide,
    `fairness`); the share of the requests is reported beside it.
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
    """tokens: prompt and produced tokens; charged: what the token bucket was asked for; requests: calls;
    seconds: in service. By default what the gateway divides: tokens, unless the target says otherwise."""
    tolerance_points: float = Field(default=3.0, gt=0, le=100)
    """Percentage points that pass. Fair queueing measures 0.1 to 2 in 20 s."""
    within_points: float | None = Field(default=None, gt=0, le=100)
    """For profiles that know their noise: pass up to this and fail above, whatever fair queueing may do."""
    window_s: float = Field(default=2.0, gt=0)
    """Width of the windows that the report plots; the verdict rests on the whole stretch."""

    def judge(self, run: Run) -> Verdict:
        """The worst share error over the phases, against its bound."""
        found, without = contests(run, self.tenants, self.phases, measure_of(run, self.work))
        return conclude_phases(
            self, [self.result(contest) for contest in found], without, self.phases, unit="points"
        )

    def result(self, contest: Contest) -> PhaseResult:
        """What the shares in one contest say."""
        work = served_work(contest.services, contest.weights)
        got, entitled = shares(work), shares(contest.weights)
        errors = {t: 100 * abs(got[t] - entitled[t]) for t in entitled}
        theory = share_bounds(contest.in_service, contest.weights, contest.costs, contest.work)
        limits = {t: self.within_points or max(self.tolerance_points, 100 * theory[t]) for t in entitled}
        furthest = max(errors, key=lambda t: errors[t] / limits[t])
        status = self._status(contest, errors, limits, theory)
        because = (
            f"in '{contest.phase}', {contest.seconds:.1f} s with all backlogged, {furthest} got "
            f"{100 * got[furthest]:.1f} % of {contest.shared} and is entitled to "
            f"{100 * entitled[furthest]:.1f} %"
        )
        if status is Status.INCONCLUSIVE:
            because += (
                f"; with {len(contest.services):,} calls, {contest.in_service} at once, fair queueing itself "
                f"may be {100 * theory[furthest]:.0f} points off"
            )
        return PhaseResult(
            phase=contest.phase,
            status=status,
            because=because,
            measured=errors[furthest],
            bound=limits[furthest]
            if status is Status.FAILED
            else self.within_points or self.tolerance_points,
            n=len(contest.services),
            contested=not _too_short(contest, theory),
            evidence=_evidence(errors, got, entitled, contest),
            details=self._details(contest, work, limits, theory),
        )

    def _status(
        self, contest: Contest, errors: dict[str, float], limits: dict[str, float], theory: dict[str, float]
    ) -> Status:
        too_short = _too_short(contest, theory)
        beyond = any(errors[t] > limits[t] for t in errors)
        if beyond and len(contest.services) >= LEAST_CALLS and not (too_short and self.within_points):
            return Status.FAILED
        passes = max(errors.values()) <= (self.within_points or self.tolerance_points)
        return Status.PASSED if passes and not too_short else Status.INCONCLUSIVE

    def _details(
        self, contest: Contest, work: dict[str, float], limits: dict[str, float], theory: dict[str, float]
    ) -> dict[str, Any]:
        requests = dict.fromkeys(contest.weights, 0)
        for service in contest.services:
            requests[service.tenant] += 1
        got, entitled, by_request = shares(work), shares(contest.weights), shares(requests)
        return {
            "start_s": contest.window[0] / NS,
            "end_s": contest.window[1] / NS,
            "in_service": contest.in_service,
            "jain": finite(jain([work[t] / w for t, w in contest.weights.items()]), 4),
            "tenants": {
                t: {
                    "weight": weight,
                    "entitled": finite(entitled[t], 4),
                    "work_share": finite(got[t], 4),
                    "request_share": finite(by_request[t], 4),
                    "work": work[t],
                    "calls": requests[t],
                    "fails_above_points": finite(limits[t]),
                    "fair_queueing_points": finite(100 * theory[t]),
                }
                for t, weight in contest.weights.items()
            },
            "windows": _windows(contest, self.window_s),
        }

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Weights 5, 3 and 2, and every lane gets a third (one turn each)."""
        return cls(), _run("abc", 300)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Thirty calls: with four in service at once, a fair gateway may be further off than that."""
        return cls(), _run("abc", 30)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Weights 5, 3 and 2 served in turns of ten."""
        return cls(), _run("abacabacab", 300)


def _too_short(contest: Contest, theory: dict[str, float]) -> bool:
    """True where even a tenant that got nothing might be within the bound of fair queueing."""
    entitled = shares(contest.weights)
    return len(contest.services) < LEAST_CALLS or any(theory[t] >= entitled[t] for t in entitled)


def _evidence(
    errors: dict[str, float], got: dict[str, float], entitled: dict[str, float], contest: Contest
) -> list[Evidence]:
    order = sorted(errors, key=lambda t: -errors[t])
    return [
        Evidence(
            note=f"{t}: {100 * got[t]:.1f} % of the work, entitled to {100 * entitled[t]:.1f} %",
            at_ns=contest.window[0],
        )
        for t in order
    ]


def _windows(contest: Contest, window_s: float) -> list[dict[str, Any]]:
    """Work shares in windows of equal width, for plots; at most 60 of them."""
    count = min(MOST_WINDOWS, max(1, int(contest.seconds / window_s)))
    start, end = contest.window
    amounts = [dict.fromkeys(contest.weights, 0.0) for _ in range(count)]
    for service in contest.services:
        amounts[(service.at_ns - start) * count // (end - start)][service.tenant] += service.work
    width_s = (end - start) / NS / count
    return [
        {
            "at_s": finite(start / NS + (k + 0.5) * width_s),
            "shares": {t: finite(s, 4) for t, s in shares(amount).items()},
        }
        for k, amount in enumerate(amounts)
    ]


def _run(turns: str, calls: int) -> Run:
    build = RunBuilder(profile(tenants={"a": 5.0, "b": 3.0, "c": 2.0}, phases={"load": calls / 50}))
    build.dispatches(islice(cycle(turns), calls), every_ms=20)
    for tenant in "abc":  # what is still waiting when the last call has gone keeps the tenant backlogged
        build.ended(tenant, calls * 20 - 500, Outcome.UNFINISHED, after_ms=500)
    return build.run()
