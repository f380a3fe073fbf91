"""Does one tenant's flood slow the others down?"""

from __future__ import annotations

import math
from typing import Any, Self

from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.history import LogicalRequest, answered_share, latencies_ns
from agentload.evidence.statistics import distribution, enough, percentile
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, finite, listed, milliseconds, undecided
from agentload.evidence.victims import Comparison, compare, invalid, unsaturated
from agentload.extensive import Growth
from agentload.model import Evidence, Outcome, Run, Status, Verdict

MS = 1_000_000
TURN_MS = 160.0
"""Two turns of four tenants, some eight calls, at the capacity of `noisy-neighbor`: 53 calls a second."""
PHASES = {"baseline": 10.0, "noise": 10.0}
TENANTS = {"quiet-1": 1.0, "quiet-2": 1.0, "flood": 1.0}


class VictimLatency(Check):
    """Passes when the victims' p95 with the noise is at most twice their p95 without it.

    The same victim trace runs twice, alone and beside the noise; p95 is of logical requests from the intended
    start, and a request never answered counts as +infinity, so refusing the victims is no way to be fast.
    A fair gateway measures about 1.1, one shared queue over 10 or infinity. No single victim may exceed
    `max_single_ratio`; differences up to `grace_ms` are never held against a gateway.
    """

    victims: tuple[TenantName, ...] = ()
    """Tenants or groups; by default all that are active in both phases."""
    baseline: PhaseName = "baseline"
    noise: PhaseName = "noise"
    max_ratio: float = Field(default=2.0, gt=1)
    max_single_ratio: float = Field(default=3.0, gt=1)
    grace_ms: float = Field(default=20.0, ge=0)

    def scaled(self, by: Growth) -> Self:
        """Where calls are further apart it takes longer to be one's turn.

        Fair queueing cannot spare a victim, or its second request at a time, a call of each of the others.
        """
        if by.load >= 1:
            return self
        return self.model_copy(update={"grace_ms": max(self.grace_ms, TURN_MS / by.load)})

    def judge(self, run: Run) -> Verdict:
        """Compare the p95 of both phases, pooled and for each victim."""
        comparison = compare(run, self.victims, self.baseline, self.noise)
        reason = invalid(run, comparison)
        details = {"victims": {v: _numbers(*comparison.of(v)) for v in comparison.victims}}
        if reason:
            return undecided(self, reason, n=len(comparison.noise), details=details)
        before, after = latencies_ns(comparison.baseline), latencies_ns(comparison.noise)
        details["pooled"] = _numbers(comparison.baseline, comparison.noise)
        ratio = _p95_ratio(before, after)
        slowest, single = self._slowest_victim(comparison)
        pooled_fails = self._exceeds(before, after, self.max_ratio)
        if pooled_fails or single is not None:
            measured, bound = (ratio, self.max_ratio) if pooled_fails else (single, self.max_single_ratio)
            who = f"the victims' ({listed(comparison.victims)})" if pooled_fails else f"{slowest}'s"
            pair = (before, after) if pooled_fails else _latencies(comparison, slowest)
            status, because = Status.FAILED, f"with the noise {who} p95 went {_change(*pair)}"
        else:
            doubt = unsaturated(run, comparison)
            if doubt:
                return undecided(self, doubt, n=len(after), details=details)
            measured, bound, status = ratio, self.max_ratio, Status.PASSED
            because = f"with the noise the victims' p95 went {_change(before, after)}"
        return conclude(
            self,
            status,
            because,
            measured=measured,
            bound=bound,
            unit="×",
            n=len(after),
            evidence=_worst(comparison.noise),
            details=details,
        )

    def _exceeds(self, before: list[float], after: list[float], ratio: float) -> bool:
        base, loaded = percentile(before, 95), percentile(after, 95)
        return loaded > ratio * base and loaded > base + self.grace_ms * MS

    def _slowest_victim(self, comparison: Comparison) -> tuple[str, float | None]:
        """The victim with the worst ratio above `max_single_ratio`; those with under 72 requests are left
        out."""
        worst: tuple[str, float | None] = ("", None)
        for victim in comparison.victims:
            before, after = _latencies(comparison, victim)
            if not (enough(len(before), 95) and enough(len(after), 95)):
                continue
            if self._exceeds(before, after, self.max_single_ratio):
                ratio = _p95_ratio(before, after)
                if worst[1] is None or ratio > worst[1]:
                    worst = (victim, ratio)
        return worst

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """One shared queue: every victim waits behind the flood, 400 ms instead of 50 ms."""
        return cls(), _run(noise_wait_ms=350)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Twenty requests of the victims in each phase are too few for a p95."""
        return cls(), _run(noise_wait_ms=350, per_victim=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The flood queues and is refused; the victims hardly notice."""
        return cls(), _run(noise_wait_ms=5)


def _latencies(comparison: Comparison, victim: str) -> tuple[list[float], list[float]]:
    before, after = comparison.of(victim)
    return latencies_ns(before), latencies_ns(after)


def _p95_ratio(before: list[float], after: list[float]) -> float:
    base, loaded = percentile(before, 95), percentile(after, 95)
    return math.inf if math.isinf(loaded) else loaded / base if base else 1.0


def _change(before: list[float], after: list[float]) -> str:
    base, loaded = percentile(before, 95), percentile(after, 95)
    if math.isinf(loaded):
        lost = sum(math.isinf(latency) for latency in after)
        return f"from {milliseconds(base)} to never: {lost:,} of {len(after):,} requests were not answered"
    return f"from {milliseconds(base)} to {milliseconds(loaded)} ({_p95_ratio(before, after):.2f} ×)"


def _numbers(before: list[LogicalRequest], after: list[LogicalRequest]) -> dict[str, Any]:
    return {"baseline": _phase_numbers(before), "noise": _phase_numbers(after)}


def _phase_numbers(requests: list[LogicalRequest]) -> dict[str, Any]:
    latency = distribution(latencies_ns(requests))
    return {
        "n": len(requests),
        "p50_ms": latency.p50,
        "p95_ms": latency.p95,
        "censored": latency.censored,
        "answered_share": finite(answered_share(requests), 4),
    }


def _worst(requests: list[LogicalRequest]) -> list[Evidence]:
    slowest = sorted(requests, key=lambda request: -request.latency_ns)[:5]
    return [
        evidence_of(r.last, f"{r.tenant}: {milliseconds(r.latency_ns)}, {r.last.outcome}") for r in slowest
    ]


def _run(*, noise_wait_ms: float, per_victim: int = 80) -> Run:
    build = RunBuilder(profile(phases=PHASES, tenants=TENANTS, only={"flood": ("noise",)}))
    for start_ms, wait_ms in ((0, 0.0), (10_000, noise_wait_ms)):
        for k in range(per_victim):
            for victim in ("quiet-1", "quiet-2"):
                build.answered(victim, start_ms + 9_000 * k / per_victim, wait_ms=wait_ms)
    for k in range(100):
        build.answered("flood", 10_000 + 90 * k, wait_ms=400)
        build.ended("flood", 10_000 + 90 * k, Outcome.REJECTED, after_ms=1, status=429)
    return build.run()
