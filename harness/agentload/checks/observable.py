"""Can the gateway's own numbers be believed?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from pydantic import Field

from agentload.checks import Check
from agentload.evidence.books import Off, Witnesses, unbalanced
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, undecided
from agentload.model import NS, Evidence, Run, Sample, Status, Verdict

_LOOKS = 200
"""Samples that are held against the records, evenly over the run; each is checked for itself anyway."""
_COUNTER = "counted.offered"


class Observable(Check):
    """Passes when the gateway's counters add up, and agree with what clients and the provider saw.

    Whoever reads the metrics during an incident has nothing else: a state that is not counted, or a refusal
    under the wrong reason, sends them the wrong way. At every sample: offered = refused + admitted, and
    admitted = completed + failed + expired + cancelled + evicted + running + waiting. Between the first
    sample and each later one the counts by reason must be those that clients were told, within what can have
    been under way (`slack_s`) and what nobody saw the answer of; and the provider saw no call that was not
    counted. For gateways with these counters: the bundled one.
    """

    slack_s: float = Field(default=0.25, gt=0, le=5)
    """How long an answer may be under way, and a client's clock late."""

    stalls_only_worsen = True
    needs_samples = (_COUNTER,)
    only_where_said = True

    def judge(self, run: Run) -> Verdict:
        """The most requests that any sample cannot account for."""
        samples = [s for s in run.samples if s.source == "gateway" and _COUNTER in s.values]
        n = len(run.records)
        if len(samples) < 3 or not enough(n, 50):
            return undecided(
                self,
                f"{len(samples):,} samples of the gateway's counters and {n:,} requests: at least 3 and 20 "
                "are needed (only the bundled gateway has these counters; no other is asked for them)",
                n=n,
            )
        worst = max(map(unbalanced, samples), key=lambda off: off.requests)
        if worst.requests == 0 and _restarted(samples):
            return undecided(
                self, "the gateway was started anew, and counts from zero since: leave out such faults", n=n
            )
        if worst.requests == 0:
            worst = self._against_witnesses(run, samples)
        return self._verdict(run, worst, n)

    def _against_witnesses(self, run: Run, samples: Sequence[Sample]) -> Off:
        ledger = run.ledger if run.ledger_available else None
        witnesses = Witnesses(run.records, ledger, round(self.slack_s * NS))
        step = max(1, len(samples) // _LOOKS)
        looked_at = [*samples[step::step], samples[-1]]
        found = [witnesses.worst(samples[0], sample) for sample in looked_at]
        return max(found, key=lambda off: off.requests)

    def _verdict(self, run: Run, worst: Off, n: int) -> Verdict:
        passed = worst.requests <= 0
        told = Counter(record.wait_cause for record in run.records if record.wait_cause)
        because = (
            f"every count of the gateway's is what {n:,} requests and the provider's ledger say"
            if passed
            else f"at {worst.at_ns / NS:.1f} s {worst.requests:,} requests are unaccounted for: {worst.what}"
        )
        return conclude(
            self,
            Status.PASSED if passed else Status.FAILED,
            because,
            measured=max(0, worst.requests),
            bound=0,
            unit="requests",
            n=n,
            evidence=[] if passed else [Evidence(note=worst.what, at_ns=worst.at_ns)],
            details={"why_requests_waited": dict(sorted(told.items()))},
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Ten of fifty were evicted, and the gateway counts nine of them nowhere."""
        return cls(), _run(counted_evictions=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Two samples."""
        return cls(), _run(counted_evictions=10, samples=2)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Forty answered, ten evicted, all counted."""
        return cls(), _run(counted_evictions=10)


def _restarted(samples: Sequence[Sample]) -> bool:
    return any(later.values[_COUNTER] < earlier.values[_COUNTER] for earlier, later in pairwise(samples))


def _run(*, counted_evictions: int, samples: int = 5) -> Run:
    """Fifty requests in five seconds, every fifth evicted; a sample each second, between two requests."""
    build = RunBuilder(profile(phases={"load": 10.0}))
    for k in range(50):
        if k % 5 == 4:
            build.refused("a", 100 * k).reason = "evicted"
        else:
            build.answered("a", 100 * k)
    for k in range(samples):
        came = 10 * k
        evicted = min(came // 5, counted_evictions)
        values = dict.fromkeys(("refused", "failed", "expired", "cancelled", "provider_refusals"), 0.0)
        values |= {"offered": came, "admitted": came, "dispatched": came - came // 5, "evicted": evicted}
        values["completed"] = came - came // 5
        named = {f"counted.{name}": float(value) for name, value in values.items()}
        at_ns = (1_000 * k + (90 if k else 0)) * MS if k else 0
        build.samples.append(
            Sample(at_ns=at_ns, source="gateway", values={"waiting": 0.0, "in_flight": 0.0, **named})
        )
    return build.run()
