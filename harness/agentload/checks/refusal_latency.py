"""Does the gateway say no quickly, even while it is flooded?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.history import counted_records
from agentload.evidence.statistics import binomial_tail, distribution, enough, percentile
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, milliseconds, percent_of, undecided
from agentload.model import Evidence, Outcome, RequestRecord, Run, Status, Verdict

MS = 1_000_000
SLOW_SHARE = 0.01
SIGNIFICANCE = 0.001


class RefusalLatency(Check):
    """Passes when refusals come within `max_ms` (p99, default 250 ms).

    A refusal that takes long has cost the caller its time and the gateway a connection: the point of refusing
    is to be quick. Below 368 refusals a p99 cannot be told: then all must be quick, one slow one is
    inconclusive, and so many that 1 % of slow ones would explain them with a probability under 0.001 fail.
    Counted from the intended start of each attempt; a 504 after waiting in the queue is not a refusal.
    """

    needs = frozenset({Need.REFUSALS})
    stalls_only_worsen = True

    max_ms: float = Field(default=250.0, gt=0)

    def judge(self, run: Run) -> Verdict:
        """The p99 of the latencies of refused attempts."""
        refused = [r for r in counted_records(run) if r.outcome is Outcome.REJECTED]
        n = len(refused)
        if not enough(n, 50):
            return undecided(
                self, f"only {n:,} requests were refused: at least 20 are needed, so raise the load", n=n
            )
        latencies = [float(_latency_ns(record)) for record in refused]
        slow = sum(latency > self.max_ms * MS for latency in latencies)
        status = self._status(latencies, slow)
        measured = percentile(latencies, 99 if enough(n, 99) else 100)
        which = "the p99 of" if enough(n, 99) else "the slowest of"
        because = f"{which} {n:,} refusals took {milliseconds(measured)}"
        because += f"; {percent_of(slow, n)} took over {self.max_ms:g} ms"
        if status is Status.INCONCLUSIVE:
            because += ": too few refusals to tell a p99, so raise the load until there are 368"
        return conclude(
            self,
            status,
            because,
            measured=measured / MS,
            bound=self.max_ms,
            unit="ms",
            n=n,
            evidence=_slowest(refused),
            details=_details(refused, latencies, slow),
        )

    def _status(self, latencies: Sequence[float], slow: int) -> Status:
        if enough(len(latencies), 99):
            quick = percentile(latencies, 99) <= self.max_ms * MS
            return Status.PASSED if quick else Status.FAILED
        if slow == 0:
            return Status.PASSED
        unlikely = binomial_tail(slow, len(latencies), SLOW_SHARE) < SIGNIFICANCE
        return Status.FAILED if unlikely else Status.INCONCLUSIVE

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Every tenth refusal comes only after a second in the queue."""
        return cls(), _run(refusals=40, slow_every=10)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten refusals."""
        return cls(), _run(refusals=10, slow_every=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """All at once."""
        return cls(), _run(refusals=40, slow_every=1_000)


def _latency_ns(record: RequestRecord) -> int:
    return record.ended_ns - record.due_ns


def _slowest(refused: Sequence[RequestRecord]) -> list[Evidence]:
    slowest = sorted(refused, key=lambda record: -_latency_ns(record))[:5]
    return [evidence_of(r, f"{r.tenant}: {r.status} after {milliseconds(_latency_ns(r))}") for r in slowest]


def _details(refused: Sequence[RequestRecord], latencies: Sequence[float], slow: int) -> dict[str, Any]:
    spread = distribution(latencies)
    tenants = sorted({record.tenant for record in refused})
    return {
        "p50_ms": spread.p50,
        "p95_ms": spread.p95,
        "p99_ms": spread.p99,
        "max_ms": max(latencies) / MS,
        "slow": slow,
        "tenants": {name: sum(record.tenant == name for record in refused) for name in tenants},
    }


def _run(*, refusals: int, slow_every: int) -> Run:
    build = RunBuilder(profile(phases={"load": 10.0}))
    for k in range(refusals):
        slow = k % slow_every == slow_every - 1
        build.refused("a", 100 * k, after_ms=1_000 if slow else 2)
    return build.run()
