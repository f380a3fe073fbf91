"""Is who has capacity of its own untouched by what happens elsewhere?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.hidden_queue import waits
from agentload.evidence.history import LogicalRequest
from agentload.evidence.statistics import enough, percentile
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import (
    conclude,
    evidence_of,
    finite,
    listed,
    milliseconds,
    percent_of,
    seconds,
    undecided,
)
from agentload.evidence.victims import Comparison, compare, invalid, unsaturated
from agentload.model import Evidence, Run, Status, Verdict
from agentload.promises import Truth

MS = 1_000_000


class Isolation(Check):
    """Passes when the victims wait no longer for the provider, and lose nothing, while others flood.

    Fairness shares what is scarce and so lets a flood be felt a little; isolation (a pool of one's own, or a
    cap on each class mate) must not. Compared are the same victims' requests with and without the noise: the
    95th percentile of their wait in the gateway, from the send to the provider's first sight of them, may
    grow by `max_extra_ms`, and of their requests `max_lost` more may stay unanswered. Times in service are
    left out: they are the provider's.
    """

    rests_on = frozenset({Truth.POOLS, Truth.TENANT_SLOTS})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True

    victims: tuple[TenantName, ...] = ()
    """Tenants or groups; by default all that are active in both phases."""
    baseline: PhaseName = "baseline"
    noise: PhaseName = "noise"
    max_extra_ms: float = Field(default=50.0, gt=0)
    max_lost: float = Field(default=0.01, gt=0, lt=1)
    """Share of the victims' requests, 0..1."""

    def judge(self, run: Run) -> Verdict:
        """The growth of the victims' waits, pooled and for each of them, and what they lost."""
        comparison = compare(run, self.victims, self.baseline, self.noise)
        n = len(comparison.noise)
        reason = invalid(run, comparison)
        if reason:
            return undecided(self, reason, n=n)
        found = _found(run, comparison)
        harmed = found.extra_ns > self.max_extra_ms * MS or found.lost > self.max_lost
        doubt = None if harmed else unsaturated(run, comparison)
        if doubt:
            return undecided(self, doubt, n=n, details=found.details())
        return self._conclude(comparison, found, Status.FAILED if harmed else Status.PASSED)

    def _conclude(self, comparison: Comparison, found: _Found, status: Status) -> Verdict:
        n, lost = len(comparison.noise), found.lost > self.max_lost
        because = (
            f"in {self.noise!r} the p95 of the wait of {found.victim} was {seconds(found.after_ns)}, in "
            f"{self.baseline!r} {seconds(found.before_ns)}; {percent_of(found.unanswered, n)} of the "
            f"requests of {listed(comparison.victims)} stayed unanswered"
        )
        return conclude(
            self,
            status,
            because,
            measured=100 * found.lost if lost else max(0.0, found.extra_ns / MS),
            bound=100 * self.max_lost if lost else self.max_extra_ms,
            unit="%" if lost else "ms",
            n=n,
            evidence=[_seen(request, ns) for request, ns in found.worst],
            details=found.details(),
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The flood's calls hold the victim's slots as well: 120 ms until one is free."""
        return cls(), _run(noise_wait_ms=120)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Twenty requests in each phase."""
        return cls(), _run(noise_wait_ms=120, requests=20)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Two milliseconds more, for the gateway has more to do."""
        return cls(), _run(noise_wait_ms=3)


class _Found(msgspec.Struct, frozen=True):
    """Of the victim that is hit hardest, or of all together where no one has enough requests."""

    victim: str
    before_ns: float
    after_ns: float
    unanswered: int
    lost: float
    """Share of all victims' requests that the noise cost their answer, 0..1."""
    worst: list[tuple[LogicalRequest, int]]
    """Beside the noise: those that were not answered, then those that waited longest, and how long (ns)."""

    @property
    def extra_ns(self) -> float:
        return self.after_ns - self.before_ns

    def details(self) -> dict[str, Any]:
        return {
            "victim": self.victim,
            "p95_wait_before_ms": finite(self.before_ns / MS),
            "p95_wait_after_ms": finite(self.after_ns / MS),
            "unanswered": self.unanswered,
        }


def _found(run: Run, comparison: Comparison) -> _Found:
    waited = {(w.seq, w.attempt): w.length_ns for w in waits(run.records, run.ledger)}
    everybody = "all victims" if len(comparison.victims) > 1 else listed(comparison.victims)
    pairs = [(everybody, (comparison.baseline, comparison.noise))]
    pairs += [(victim, comparison.of(victim)) for victim in comparison.victims]
    found = [
        (victim, _p95_wait(before, waited), _p95_wait(after, waited))
        for victim, (before, after) in pairs
        if enough(min(len(before), len(after)), 95)
    ]
    victim, before_ns, after_ns = max(found, key=lambda one: one[2] - one[1])
    lost_before = sum(not request.answered for request in comparison.baseline)
    lost = sum(not request.answered for request in comparison.noise)
    return _Found(
        victim,
        before_ns,
        after_ns,
        lost,
        lost / len(comparison.noise) - lost_before / len(comparison.baseline),
        sorted(
            ((request, _wait_ns(request, waited)) for request in comparison.noise),
            key=lambda one: (one[0].answered, -one[1]),
        ),
    )


def _p95_wait(requests: Sequence[LogicalRequest], waited: Mapping[tuple[int, int], int]) -> float:
    """Of first attempts; one that was refused at once did not wait, but is lost."""
    return percentile([_wait_ns(request, waited) for request in requests], 95)


def _wait_ns(request: LogicalRequest, waited: Mapping[tuple[int, int], int]) -> int:
    return waited.get((request.seq, request.first.attempt), 0)


def _seen(request: LogicalRequest, wait_ns: int) -> Evidence:
    return evidence_of(
        request.last, f"{request.tenant}: waited {milliseconds(wait_ns)}, {request.last.outcome}"
    )


def _run(*, noise_wait_ms: float, requests: int = 90) -> Run:
    phases = {"baseline": 9.0, "noise": 9.0}
    build = RunBuilder(profile(phases=phases, tenants={"own": 1.0, "flood": 1.0}, only={"flood": ("noise",)}))
    for start_ms, wait_ms in ((0, 1.0), (9_000, noise_wait_ms)):
        for k in range(requests):
            build.answered("own", start_ms + 8_500 * k / requests, wait_ms=wait_ms)
    for k in range(100):
        build.answered("flood", 9_000 + 80 * k, wait_ms=400)
        build.refused("flood", 9_000 + 80 * k)
    return build.run()
