"""Would an alert on queue age have rung when it should, and only then?"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from agentload.checks import Check
from agentload.evidence.hidden_queue import waits
from agentload.evidence.intervals import Interval
from agentload.evidence.stuck import fires, said_by_gauge, seen_from_outside, touches
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, undecided
from agentload.model import NS, CallEnding, Evidence, Outcome, Run, Sample, Status, Verdict

_AGE, _DEPTH = "oldest_age_s", "waiting"
_LEAST_SAMPLES = 20


class QueueAgeAlert(Check):
    """Passes when an alert on the gateway's own queue age fires while work is stuck, and at no other time.

    Depth is ambiguous: 5,000 that clear within a minute are fine, 50 that have not moved for ten minutes are
    an incident. So the age is what pages somebody, and it must be the age of the OLDEST that waits. From
    outside it is known when an attempt has been in the gateway for longer than `max_age_s` without a call at
    the provider; where that lasts, the gauge must say so, too, and not where it does not. The run must hold
    both: work that is stuck, and at another time a queue as deep that moves.
    """

    stalls_only_worsen = True
    needs_samples = (_AGE, _DEPTH)
    only_where_said = True

    max_age_s: float = Field(default=2.0, gt=0)
    """The alert's threshold, scaled to a run of a minute."""
    for_s: float = Field(default=1.0, ge=0)
    """How long it must last before it fires."""
    grace_s: float = Field(default=0.5, gt=0)
    """By how much the two may differ about when."""

    def judge(self, run: Run) -> Verdict:
        """Alerts that did not come, and alerts without a cause."""
        samples = [s for s in run.samples if s.source == "gateway" and s.values.keys() >= {_AGE, _DEPTH}]
        samples.sort(key=lambda sample: sample.at_ns)
        n = len(samples)
        if n < _LEAST_SAMPLES:
            return undecided(
                self,
                f"{n:,} samples of what waits in the gateway, and its age: at least {_LEAST_SAMPLES} are "
                "needed (of a target whose file names both below `metrics:`; no other is asked for them)",
                n=n,
            )
        if not run.ledger_available:
            return undecided(self, "when work was stuck is known only with our provider's ledger", n=n)
        stuck = seen_from_outside(waits(run.records, run.ledger), round(self.max_age_s * NS))
        due = fires(stuck, round((self.for_s + 2 * self.grace_s) * NS))
        rung = fires(said_by_gauge(samples, _AGE, self.max_age_s), round(self.for_s * NS))
        if not due:
            long_s = self.max_age_s + self.for_s
            return undecided(self, f"nothing was stuck for {long_s:g} s: let the provider stand still", n=n)
        if not self._deep_elsewhere(samples, stuck):
            return undecided(
                self, "no queue as deep as the stuck one has moved in this run: add a burst that clears", n=n
            )
        return self._verdict(due, stuck, rung, n)

    def _deep_elsewhere(self, samples: Sequence[Sample], stuck: Sequence[Interval]) -> bool:
        """Whether more waited in a moving queue than when the stuck one should have rung."""
        moving = [s.values[_DEPTH] for s in samples if not touches((s.at_ns, s.at_ns), stuck, 0)]
        still = [s.values[_DEPTH] for s in samples if touches((s.at_ns, s.at_ns), stuck, 0)]
        return bool(moving) and max(moving) >= min(still, default=0.0) and max(moving) > 0

    def _verdict(
        self, due: Sequence[Interval], stuck: Sequence[Interval], rung: Sequence[Interval], n: int
    ) -> Verdict:
        grace_ns = round(self.grace_s * NS)
        missed = [stretch for stretch in due if not touches(stretch, rung, grace_ns)]
        false = [stretch for stretch in rung if not touches(stretch, stuck, grace_ns)]
        wrong = len(missed) + len(false)
        because = (
            f"work was stuck {len(due):,} times for longer than {self.max_age_s:g} s, and the gauge said so"
        )
        if wrong:
            because = (
                f"{len(missed):,} of {len(due):,} times when work was stuck the gauge of age did not say so, "
                f"and {len(false):,} times it said so for nothing"
            )
        notes = [(start, "stuck, and no alert") for start, _ in missed]
        notes += [(start, "an alert, and nothing was stuck") for start, _ in false]
        return conclude(
            self,
            Status.FAILED if wrong else Status.PASSED,
            because,
            measured=wrong,
            bound=0,
            unit="alerts",
            n=n,
            evidence=[Evidence(note=note, at_ns=at_ns) for at_ns, note in notes],
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Fifty are stuck for six seconds, and the gauge shows the age of the newest."""
        return cls(), _run(shows_oldest=False)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten samples."""
        return cls(), _run(shows_oldest=True, samples=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The same, and the gauge shows the age of the oldest."""
        return cls(), _run(shows_oldest=True)


def _run(*, shows_oldest: bool, samples: int = 120) -> Run:
    """Eighty come at once and are gone in a second; from 4 s on fifty come, and nothing moves until 10 s."""
    build = RunBuilder(profile(phases={"load": 12.0}))
    for k in range(80):
        build.answered("a", 1_000, wait_ms=12 * k)
    for k in range(50):
        stuck = build.ended("b", 4_000 + 100 * k, Outcome.ANSWERED, after_ms=6_050 - 100 * k, status=200)
        build.call(stuck, 10_000, 10_050, CallEnding.COMPLETED)
    for at_ms in range(0, 100 * samples, 100):
        age_s, depth = 0.0, 0
        if 1_000 <= at_ms < 1_960:
            age_s, depth = (at_ms - 1_000) / 1e3, 80 - (at_ms - 1_000) // 12
        elif 4_000 <= at_ms < 10_000:
            age_s = (at_ms - 4_000) / 1e3 if shows_oldest else 0.1
            depth = min(50, (at_ms - 4_000) // 100 + 1)
        values = {"oldest_age_s": age_s, "waiting": float(depth)}
        build.samples.append(Sample(at_ns=at_ms * MS, source="gateway", values=values))
    return build.run()
