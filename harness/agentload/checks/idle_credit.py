"""Does a tenant that returns take more than its share, for having been away?"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.contest import Contest, PhaseResult, conclude_phases, contest_from
from agentload.evidence.fairness import (
    Measure,
    backlog,
    measure_of,
    served_work,
    services,
    share_bounds,
    shares,
)
from agentload.evidence.hidden_queue import waits
from agentload.evidence.history import tenant_names
from agentload.evidence.memberships import changes
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import finite
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict
from agentload.promises import Truth

LEAST_CALLS = 20
LEAST_PART = 0.5
"""Of the window: a shorter contest says too little."""


class IdleCredit(Check):
    """Passes when a tenant that comes back gets its weight's share at first, and no more.

    Fairness that keeps accounts must not pay for idleness: whoever was away for a while and returns with a
    full queue would otherwise be served alone until it has caught up, and everybody else waits. In the first
    `window_s` after a tenant joins (by default, at the beginning of each phase in which one becomes active)
    its share of the served work, among the tenants that are backlogged there, may be its weight's share plus
    what fair queueing itself may be off in so short a time, (C + 1)/work · [(1 − p)·cmax + p·Σ cmax].
    """

    rests_on = frozenset({Truth.WEIGHTS})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups that return; by default all that join at the beginning of a phase."""
    phases: tuple[PhaseName, ...] = ()
    """The phases at whose beginning they return; by default every recorded one in which somebody joins."""
    window_s: float = Field(default=6.0, gt=0)
    work: Measure | None = None
    """As `weighted-share` has it."""
    tolerance_points: float = Field(default=5.0, gt=0, le=100)
    """Percentage points over its share that always pass."""

    def judge(self, run: Run) -> Verdict:
        """The share of each tenant that returned, against its weight's share and the bound."""
        wanted = set(tenant_names(run, self.tenants))
        measure = measure_of(run, self.work)
        waiting, served = backlog(waits(run.records, run.ledger)), services(run.ledger, measure)
        results: list[PhaseResult] = []
        without: list[str] = []
        for change in changes(run, self.phases):
            end_ns = min(change.window[1], change.at_ns + round(self.window_s * NS))
            window = (change.at_ns, end_ns)
            contest = contest_from(run, change.phase, window, waiting, served, measure)
            back = [t for t in change.joined if t in wanted and contest is not None and t in contest.weights]
            if contest is None or not back:
                without.append(change.phase)
            else:
                results += [self._result(contest, tenant) for tenant in back]
        return conclude_phases(self, results, without, self.phases, unit="% of the work")

    def _result(self, contest: Contest, tenant: str) -> PhaseResult:
        got = shares(served_work(contest.services, contest.weights))[tenant]
        entitled = shares(contest.weights)[tenant]
        theory = share_bounds(contest.in_service, contest.weights, contest.costs, contest.work)[tenant]
        bound = entitled + max(self.tolerance_points / 100, theory)
        long_enough = contest.seconds >= LEAST_PART * self.window_s and len(contest.services) >= LEAST_CALLS
        decidable = long_enough and bound < 1
        because = (
            f"{tenant} came back in '{contest.phase}' and got {100 * got:.1f} % of {contest.shared} in its "
            f"first {contest.seconds:.1f} s; entitled to {100 * entitled:.1f} %, bound {100 * bound:.1f} %"
        )
        status = Status.FAILED if got > bound else Status.PASSED
        if not decidable:
            status = Status.INCONCLUSIVE
            because += f", with {len(contest.services):,} calls, {contest.in_service} at once"
        return PhaseResult(
            phase=f"{contest.phase}, {tenant}",
            status=status,
            because=because,
            measured=100 * got,
            bound=100 * bound,
            n=len(contest.services),
            contested=decidable,
            evidence=[Evidence(note=f"{tenant}: {100 * got:.1f} % of the work", at_ns=contest.window[0])],
            details=_details(contest, got, entitled, theory),
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """No lift of the clock on return: for six seconds the returner is served, and hardly anybody else."""
        return cls(), _run("rrrrrrra" * 4 + "rrrrrrrb" * 4)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """The returner sends four calls."""
        return cls(), _run("rrrrrrra", calls=8)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """One turn each."""
        return cls(), _run("rab")


def _details(contest: Contest, got: float, entitled: float, theory: float) -> dict[str, Any]:
    return {
        "start_s": contest.window[0] / NS,
        "seconds": finite(contest.seconds),
        "share": finite(got, 4),
        "entitled": finite(entitled, 4),
        "fair_queueing_points": finite(100 * theory),
        "in_service": contest.in_service,
        "compared": list(contest.weights),
        "calls": len(contest.services),
    }


def _run(turns: str, calls: int = 400) -> Run:
    """Two tenants alternate for five seconds; then a third returns."""
    tenants = {"a": 1.0, "b": 1.0, "r": 1.0}
    build = RunBuilder(profile(phases={"before": 5.0, "after": 8.0}, tenants=tenants, only={"r": ("after",)}))
    before = list(islice(cycle("ab"), 250))
    build.dispatches(before, every_ms=20)
    build.dispatches(islice(cycle(turns), calls), every_ms=20, start_ms=5_000)
    for tenant in "abr":  # what waits behind it all
        build.ended(tenant, 5_000, Outcome.UNFINISHED, after_ms=20 * calls)
    return build.run()
