"""Does a caller that says less than it uses get more for that, and is it found out?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.contest import Contest, contest_in, contests
from agentload.evidence.fairness import measure_of, served_work, services, share_bounds, shares
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, listed, undecided
from agentload.model import NS, Evidence, Outcome, Run, Sample, Status, Verdict, worst
from agentload.promises import Truth

PRODUCED, MISSED = "output_tokens", "underestimated_output_tokens"
"""Gauges of the gateway, counted up: output of completed calls, and what of it was not expected."""
LEAST_CALLS = 20
LEAST_TOKENS = 1_000


class EstimateDrift(Check):
    """Passes when nobody gets more REAL work than its share for what it declares, and estimates converge.

    Judged in the last part of each phase's longest stretch in which all compared tenants had work waiting:
    until then the gateway may learn. Work is what the provider counted (tokens, or what the gateway is
    declared to divide), whatever was asked for. A tenant may have `tolerance_points` more than its share, or
    as much more as fair queueing itself may be off in such a stretch (see weighted-share); less than its
    share is that check's business. Where the gateway tells how much output it had not expected
    (`underestimated_output_tokens` and `output_tokens` of its samples, as the bundled one does), that may be
    at most `max_underestimated` of the output in that part. Estimates that stay wrong are paid for by whoever
    else is in service: reservations and budgets rest on them.
    """

    rests_on = frozenset({Truth.WEIGHTS})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    tenants: tuple[TenantName, ...] = ()
    """Tenants or groups to compare; by default all that are active in the phase."""
    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase in which all are backlogged at some time."""
    last_part: float = Field(default=0.5, gt=0, le=1)
    """Part of the stretch that counts, 0..1: its end."""
    tolerance_points: float = Field(default=3.0, gt=0, le=100)
    """Percentage points beyond its share that a tenant may have."""
    within_points: float | None = Field(default=None, gt=0, le=100)
    """For profiles that know their noise: pass up to this and fail above, whatever fair queueing may do."""
    max_underestimated: float = Field(default=0.25, gt=0, le=1)
    """Share of the output that was not expected, 0..1. Costs that vary are never all foreseen."""

    def judge(self, run: Run) -> Verdict:
        """The largest excess over a share, and the output that was not expected."""
        found, _ = contests(run, self.tenants, self.phases, measure_of(run, None))
        parts = [self._part(run, self._end_of(run, contest)) for contest in found]
        if not parts:
            return undecided(
                self, "the tenants were never all backlogged at once: more users per tenant would decide"
            )
        status = worst([part.status for part in parts])
        decisive = max(parts, key=lambda part: (part.status is status, part.ratio))
        return conclude(
            self,
            status,
            decisive.because,
            measured=decisive.measured,
            bound=decisive.bound,
            unit=decisive.unit,
            n=decisive.calls,
            evidence=decisive.evidence,
            details={"phases": {part.phase: part.details for part in parts}},
        )

    def _end_of(self, run: Run, contest: Contest) -> Contest:
        start_ns, end_ns = contest.window
        window = (end_ns - round((end_ns - start_ns) * self.last_part), end_ns)
        measure = measure_of(run, None)
        served = services(run.ledger, measure)
        return contest_in(run, contest.phase, list(contest.weights), window, served, measure)

    def _part(self, run: Run, contest: Contest) -> _Part:
        got, entitled = shares(served_work(contest.services, contest.weights)), shares(contest.weights)
        theory = share_bounds(contest.in_service, contest.weights, contest.costs, contest.work)
        excess = {tenant: 100 * (got[tenant] - entitled[tenant]) for tenant in entitled}
        limits = {t: self.within_points or max(self.tolerance_points, 100 * theory[t]) for t in entitled}
        most = max(excess, key=lambda tenant: excess[tenant] / limits[tenant])
        return _Part(
            phase=contest.phase,
            calls=len(contest.services),
            tenant=most,
            shared=contest.shared,
            seconds=contest.seconds,
            got=100 * got[most],
            entitled=100 * entitled[most],
            excess=max(0.0, excess[most]),
            limit=limits[most],
            tolerance=self.within_points or self.tolerance_points,
            too_short=len(contest.services) < LEAST_CALLS
            or any(theory[t] >= 1 - entitled[t] for t in entitled),
            missed=_missed(run.samples, contest.window),
            max_missed=self.max_underestimated,
            at_ns=contest.window[0],
            shares={tenant: finite(share, 4) for tenant, share in got.items()},
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Equal tenants take turns; one declares nothing, and each of its calls is four times as long."""
        return cls(), _run(liar_tokens=140, turns="ab")

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten calls."""
        return cls(), _run(liar_tokens=140, turns="ab", calls=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The same with four turns of the other for each of its own."""
        return cls(), _run(liar_tokens=140, turns="abbbb")


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """The last part of one contest."""

    phase: str
    calls: int
    seconds: float
    tenant: str
    """Who has most beyond its share."""
    shared: str
    """Of what, in words."""
    got: float
    entitled: float
    excess: float
    """In points, as the three above and below in per cent."""
    limit: float
    tolerance: float
    too_short: bool
    """Even a tenant that got everything might be within the bound of fair queueing."""
    missed: float | None
    """Share of the output that was not expected; None where the gateway does not tell."""
    max_missed: float
    at_ns: int
    shares: dict[str, float | None]

    @property
    def status(self) -> Status:
        if self.missed is not None and self.missed > self.max_missed:
            return Status.FAILED
        if self.too_short:
            return Status.INCONCLUSIVE
        if self.excess > self.limit:
            return Status.FAILED
        return Status.PASSED if self.excess <= self.tolerance else Status.INCONCLUSIVE

    @property
    def by_estimates(self) -> bool:
        """Whether the estimates, and not the shares, are further from what is allowed."""
        return self.missed is not None and self.missed / self.max_missed > self.excess / self.limit

    @property
    def ratio(self) -> float:
        return max(self.excess / self.limit, (self.missed or 0.0) / self.max_missed)

    @property
    def measured(self) -> float:
        return 100 * (self.missed or 0.0) if self.by_estimates else self.excess

    @property
    def bound(self) -> float:
        if self.by_estimates:
            return 100 * self.max_missed
        return self.limit if self.status is Status.FAILED else self.tolerance

    @property
    def unit(self) -> str:
        return "% of the output unexpected" if self.by_estimates else "points"

    @property
    def because(self) -> str:
        words = (
            f"in the last {self.seconds:.1f} s of '{self.phase}' {self.tenant} got {self.got:.1f} % of "
            f"{self.shared.replace('the work', 'the real work')} and is entitled to {self.entitled:.1f} %"
        )
        if self.missed is not None:
            words += f"; {100 * self.missed:.0f} % of the output was more than the gateway had expected"
        if self.status is Status.INCONCLUSIVE:
            words += f"; with {self.calls:,} calls that may be chance: a longer phase would decide"
        return words

    @property
    def evidence(self) -> list[Evidence]:
        found = [f"{tenant}: {100 * (share or 0):.1f} % of the work" for tenant, share in self.shares.items()]
        return [Evidence(note=listed(found, most=8), at_ns=self.at_ns)]

    @property
    def details(self) -> dict[str, Any]:
        return {
            "from_s": self.at_ns / NS,
            "seconds": finite(self.seconds),
            "work_shares": self.shares,
            "fails_above_points": finite(self.limit),
            "underestimated": None if self.missed is None else finite(self.missed, 4),
        }


def _missed(samples: Sequence[Sample], window: tuple[int, int]) -> float | None:
    """What part of the output between the first and the last sample of the window was not expected."""
    seen = [
        (one.values[PRODUCED], one.values[MISSED])
        for one in samples
        if window[0] <= one.at_ns <= window[1] and PRODUCED in one.values and MISSED in one.values
    ]
    if not seen or seen[-1][0] - seen[0][0] < LEAST_TOKENS:
        return None
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


def _run(*, liar_tokens: int, turns: str, calls: int = 400) -> Run:
    """Two equal tenants, one call after another, every 20 ms; both always have work waiting."""
    length_ms = 20 * calls
    build = RunBuilder(profile(phases={"load": length_ms / 1_000}))
    for k in range(calls):
        tenant = turns[k % len(turns)]
        tokens = liar_tokens if tenant == "a" else 20
        build.answered(tenant, 20.0 * k, wait_ms=15, service_ms=5, output_tokens=tokens)
    for tenant in "ab":
        record = build.ended(tenant, 0, Outcome.UNFINISHED, after_ms=length_ms)
        record.sent_ns = -MS
    return build.run()
