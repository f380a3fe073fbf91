"""Does one tenant's flood cost the others their answers?"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.history import LogicalRequest, answered_share
from agentload.evidence.statistics import fisher_lower
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, finite, percent_of, undecided
from agentload.evidence.victims import Comparison, compare, invalid, unsaturated
from agentload.model import Evidence, Run, Status, Verdict

PHASES = {"baseline": 10.0, "noise": 10.0}
TENANTS = {"quiet-1": 1.0, "quiet-2": 1.0, "flood": 1.0}


class VictimGoodput(Check):
    """Passes when the victims get as many answers beside the noise as without it.

    Fails when the answered share (of logical requests, after their retries) fell by `min_drop_points` or more
    AND so big a fall by chance alone has a probability below `significance` (Fisher's exact test, one-sided).
    Judged for all victims together and for each alone, the latter at `significance` ÷ number of victims.
    Latency without this says nothing: "68 times better p99" was once had by answering 4 % of the requests.
    """

    victims: tuple[TenantName, ...] = ()
    """Tenants or groups; by default all that are active in both phases."""
    baseline: PhaseName = "baseline"
    noise: PhaseName = "noise"
    min_drop_points: float = Field(default=2.0, ge=0, le=100)
    """Percentage points."""
    significance: float = Field(default=0.001, gt=0, lt=0.5)

    def judge(self, run: Run) -> Verdict:
        """Compare the answered shares of both phases, pooled and for each victim."""
        comparison = compare(run, self.victims, self.baseline, self.noise)
        details: dict[str, Any] = {"victims": {v: _numbers(*comparison.of(v)) for v in comparison.victims}}
        reason = invalid(run, comparison)
        if reason:
            return undecided(self, reason, n=len(comparison.noise), details=details)
        details["pooled"] = _numbers(comparison.baseline, comparison.noise)
        groups = self._groups(comparison)
        failing = [group for group in groups if self._fell(*group[1:])]
        name, before, after, _ = max(failing or groups[:1], key=lambda group: _drop(group[1], group[2]))
        if not failing and (doubt := unsaturated(run, comparison)):
            return undecided(self, doubt, n=len(after), details=details)
        return conclude(
            self,
            Status.FAILED if failing else Status.PASSED,
            f"{name}: {_answered(after)} requests answered beside the noise, {_answered(before)} without it",
            measured=_drop(before, after),
            bound=self.min_drop_points,
            unit="points",
            n=len(after),
            evidence=_losses(after),
            details=details,
        )

    def _groups(
        self, comparison: Comparison
    ) -> list[tuple[str, list[LogicalRequest], list[LogicalRequest], float]]:
        """(who, before, after, significance): first all together, then each alone."""
        alone = self.significance / len(comparison.victims)
        each = [(victim, *comparison.of(victim), alone) for victim in comparison.victims]
        return [("the victims", comparison.baseline, comparison.noise, self.significance), *each]

    def _fell(self, before: list[LogicalRequest], after: list[LogicalRequest], significance: float) -> bool:
        if not before or not after or _drop(before, after) < self.min_drop_points:
            return False
        p = fisher_lower(_count(before), len(before), _count(after), len(after))
        return p < significance

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The flood fills the shared queue, and one victim request in five is refused."""
        return cls(), _run(refuse_every=5)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Twenty requests of the victims in each phase."""
        return cls(), _run(refuse_every=5, per_victim=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """One refusal in 160 is no trend."""
        return cls(), _run(refuse_every=80)


def _count(requests: list[LogicalRequest]) -> int:
    return sum(request.answered for request in requests)


def _answered(requests: list[LogicalRequest]) -> str:
    return percent_of(_count(requests), len(requests))


def _drop(before: list[LogicalRequest], after: list[LogicalRequest]) -> float:
    """Percentage points by which the answered share fell."""
    return 100 * (answered_share(before) - answered_share(after))


def _numbers(before: list[LogicalRequest], after: list[LogicalRequest]) -> dict[str, Any]:
    return {
        "baseline": {"n": len(before), "answered": _count(before)},
        "noise": {
            "n": len(after),
            "answered": _count(after),
            "refused_at_first": sum(request.refused for request in after),
        },
        "drop_points": finite(_drop(before, after)),
        "p": finite(fisher_lower(_count(before), len(before), _count(after), len(after)), 6),
    }


def _losses(requests: list[LogicalRequest]) -> list[Evidence]:
    lost = [request.last for request in requests if not request.answered]
    return [evidence_of(r, f"{r.tenant}: {r.outcome} {r.status or r.reason or ''}".rstrip()) for r in lost]


def _run(*, refuse_every: int, per_victim: int = 80) -> Run:
    build = RunBuilder(profile(phases=PHASES, tenants=TENANTS, only={"flood": ("noise",)}))
    for k in range(per_victim):
        for victim in ("quiet-1", "quiet-2"):
            at_ms = 9_000 * k / per_victim
            build.answered(victim, at_ms)
            if k % refuse_every == refuse_every - 1 and victim == "quiet-1":
                build.refused(victim, 10_000 + at_ms)
            else:
                build.answered(victim, 10_000 + at_ms)
    for k in range(100):
        build.answered("flood", 10_000 + 90 * k, wait_ms=400)
        build.refused("flood", 10_000 + 90 * k)
    return build.run()
