"""Are shares right again soon after tenants join or leave?"""

from __future__ import annotations

from itertools import cycle, islice

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.checks.weighted_share import WeightedShare
from agentload.evidence.contest import PhaseResult, conclude_phases, contest_from
from agentload.evidence.fairness import Measure, Service, backlog, measure_of, services
from agentload.evidence.hidden_queue import waits
from agentload.evidence.intervals import Interval
from agentload.evidence.memberships import Change, changes, groups
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import listed, undecided
from agentload.model import NS, Outcome, Run, Status, Verdict
from agentload.promises import Truth


class Rebalance(Check):
    """Passes when work is shared by weight again `within_s` after tenants have joined or left.

    Looked at is the window of `window_s` that begins `within_s` after each phase boundary at which the set of
    active tenants changes. Compared are the tenants that are backlogged all through that window (so that
    one-shot tenants drop out), and the largest difference between a tenant's share of the served work and its
    weight's share is judged as `weighted-share` does it: up to `tolerance_points` passes, more than fair
    queueing itself may be off fails, and between the two nothing follows.
    """

    rests_on = frozenset({Truth.WEIGHTS})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    phases: tuple[PhaseName, ...] = ()
    """The phases that begin with the change; by default every recorded one in which somebody joins or
    leaves."""
    within_s: float = Field(default=2.0, ge=0)
    window_s: float = Field(default=6.0, gt=0)
    """Shorter ones say little: with 16 calls at once, fair queueing is several points off in 6 s."""
    tolerance_points: float = Field(default=5.0, gt=0, le=100)
    work: Measure | None = None
    """As `weighted-share` has it."""

    def judge(self, run: Run) -> Verdict:
        """The worst share error over all changes."""
        measure = measure_of(run, self.work)
        waiting, served = backlog(waits(run.records, run.ledger)), services(run.ledger, measure)
        results: list[PhaseResult] = []
        without: list[str] = []
        found = changes(run, self.phases)
        if not found:
            return undecided(self, "no recorded phase begins with other tenants than the one before it had")
        for change in found:
            result = self._result(run, change, waiting, served)
            if result is None:
                without.append(change.phase)
            else:
                results.append(result)
        return conclude_phases(self, results, without, self.phases, unit="points")

    def _result(
        self, run: Run, change: Change, waiting: dict[str, list[Interval]], served: list[Service]
    ) -> PhaseResult | None:
        start_ns = change.at_ns + round(self.within_s * NS)
        window = (start_ns, start_ns + round(self.window_s * NS))
        if window[1] > change.window[1]:
            return self._too_short(change)
        contest = contest_from(run, change.phase, window, waiting, served, measure_of(run, self.work))
        if contest is None:
            return None
        shares = WeightedShare(tolerance_points=self.tolerance_points, work=self.work)
        result = shares.result(contest)
        joined, left = groups(run, change.joined), groups(run, change.left)
        because = f"{_what(change, joined, left)}; {self.within_s:g} s later, {result.because}"
        details = {**result.details, "joined": joined, "left": left}
        return msgspec.structs.replace(result, because=because, details=details)

    def _too_short(self, change: Change) -> PhaseResult:
        length_s = (change.window[1] - change.at_ns) / NS
        return PhaseResult(
            phase=change.phase,
            status=Status.INCONCLUSIVE,
            because=f"'{change.phase}' lasts {length_s:g} s, too short to look at {self.window_s:g} s of it "
            f"after {self.within_s:g} s",
            measured=0.0,
            bound=self.tolerance_points,
            n=0,
            contested=False,
            evidence=[],
            details={"seconds": length_s},
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Two seconds after the third tenant has come it still gets one turn in ten."""
        return cls(), _run("ababababac")

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """The phase after the change lasts only six seconds."""
        return cls(), _run("ababababac", after_s=6)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """One turn each at once."""
        return cls(), _run("abc")


def _what(change: Change, joined: list[str], left: list[str]) -> str:
    parts = [f"{listed(joined)} joined"] if joined else []
    parts += [f"{listed(left)} left"] if left else []
    return f"{' and '.join(parts)} at {change.at_ns / NS:g} s"


def _run(turns: str, *, after_s: float = 10.0) -> Run:
    """Two tenants alternate for five seconds; then a third joins."""
    tenants = {"a": 1.0, "b": 1.0, "c": 1.0}
    phases = {"two": 5.0, "three": after_s}
    build = RunBuilder(profile(phases=phases, tenants=tenants, only={"c": ("three",)}))
    build.dispatches(islice(cycle("ab"), 250), every_ms=20)
    calls = int(50 * after_s)
    build.dispatches(islice(cycle(turns), calls), every_ms=20, start_ms=5_000)
    for tenant in "abc":  # what waits behind it all
        build.ended(tenant, 5_000, Outcome.UNFINISHED, after_ms=1_000 * after_s)
    return build.run()
