"""Do refused callers come back all at once?"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.intervals import length_ns, merge
from agentload.evidence.promises import Promise, promises
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import UNLIKELY, conclude, evidence_of, finite, moot, undecided
from agentload.model import NS, Evidence, Run, Status, Verdict
from agentload.promises import Truth

LEAST_PROMISES = 200
"""Below this, chance alone makes a busiest 100 ms that looks like a herd."""


class RetryAfterSpread(Check):
    """Passes when the promises of Retry-After are spread: the busiest 100 ms of returns ÷ the mean is ≤ 6.

    Official SDKs wait exactly as long as they are told, without jitter. Tell everybody when the window ends
    or the outage is over, and they are all there at that instant, most of them to be refused again. The herd
    index counts the instants at which clients that obey to the letter would be back, in bins of `bin_ms`: the
    fullest one over the mean of all bins in which somebody was waiting on a promise. Without any herd its
    99th percentile is 4.5 at 200 promises. A bin that chance alone would fill so far is not held against
    anybody.
    """

    needs = frozenset({Need.RETRY_AFTER})
    stalls_only_worsen = True

    max_index: float = Field(default=6.0, gt=1)
    bin_ms: float = Field(default=100.0, gt=0)
    min_promises: int = Field(default=LEAST_PROMISES, ge=20)

    def judge(self, run: Run) -> Verdict:
        """The fullest bin of promised instants against their mean."""
        made = promises(run)
        if not made and run.denies(Truth.RETRY_AFTER):
            said = "nobody was told when to come back, as the target declares (`retry_after: false`)"
            return moot(self, said)
        if len(made) < self.min_promises:
            return undecided(
                self,
                f"only {len(made):,} refusals told their caller when to come back: at least "
                f"{self.min_promises} are needed to tell a herd from chance",
                n=len(made),
            )
        bin_ns = round(self.bin_ms * MS)
        bins = Counter(promise.due_ns // bin_ns for promise in made)
        fullest, most = max(bins.items(), key=lambda item: (item[1], -item[0]))
        waiting_ns = length_ns(merge((p.made_ns, p.due_ns) for p in made))
        mean = len(made) * bin_ns / max(waiting_ns, bin_ns)
        index = most / mean
        status = self._status(most, mean, max(1, round(waiting_ns / bin_ns)))
        because = (
            f"{most:,} of {len(made):,} promises end in the same {self.bin_ms:g} ms, at "
            f"{fullest * bin_ns / NS:.1f} s, {index:.1f} × the mean of {mean:.1f} over the "
            f"{waiting_ns / NS:.1f} s in which anybody waited"
        )
        if status is Status.INCONCLUSIVE:
            because += ": so few a bin that chance alone may do that, so let more be refused at once"
        return conclude(
            self,
            status,
            because,
            measured=index,
            bound=self.max_index,
            unit="× the mean",
            n=len(made),
            evidence=[
                Evidence(note=f"{most:,} callers told to be back", at_ns=fullest * bin_ns),
                *(
                    evidence_of(p.refusal, f"{p.refusal.tenant}: told to wait {p.wait_s:g} s")
                    for p in made
                    if p.due_ns // bin_ns == fullest
                ),
            ],
            details=_details(made, bins, bin_ns, mean),
        )

    def _status(self, most: int, mean: float, bins: int) -> Status:
        if most <= self.max_index * mean:
            return Status.PASSED
        return Status.FAILED if bins * poisson_tail(most, mean) < UNLIKELY else Status.INCONCLUSIVE

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """For ten seconds callers are refused, and all are told when the outage ends."""
        return cls(), _run(same_instant=True)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """A hundred refusals."""
        return cls(), _run(same_instant=True, refused=100)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Each is told a time of its own after that."""
        return cls(), _run(same_instant=False)


def poisson_tail(k: int, mean: float) -> float:
    """P(X >= k) for X ~ Poisson(mean), for k above the mean: bounded by a geometric series."""
    first = math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
    return min(1.0, first / (1 - mean / (k + 1)))


def _details(made: list[Promise], bins: Counter[int], bin_ns: int, mean: float) -> dict[str, Any]:
    return {
        "promises": len(made),
        "mean_per_bin": finite(mean),
        "values_s": dict(Counter(f"{p.wait_s:g}" for p in made).most_common(20)),
        "busiest": [
            {"at_s": finite(start * bin_ns / NS), "returns": count} for start, count in bins.most_common(10)
        ],
    }


def _run(*, same_instant: bool, refused: int = 400) -> Run:
    """An outage from 0 to 10 s; callers come evenly, and are told to be back at 10 s or up to 10 s later."""
    build = RunBuilder(profile(phases={"outage": 10.0, "after": 10.0}))
    for k in range(refused):
        at_ms = 10_000 * k / refused
        left_s = math.ceil((10_000 - at_ms) / 1_000)
        build.refused("a", at_ms, status=503, retry_after=str(left_s if same_instant else 10))
    return build.run()
