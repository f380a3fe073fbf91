"""Does the gateway's memory reach a plateau?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.history import counted_phases
from agentload.evidence.statistics import percentile
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, undecided
from agentload.model import NS, Evidence, Run, Sample, Status, Verdict

QUARTERS = 4
LEAST_SAMPLES = 40
LEAST_S = 10.0
MIB = 2**20


class BoundedMemory(Check):
    """Passes when the gateway's memory (or the size of its state) stops growing while tenants come and go.

    What is kept for every tenant that was ever seen (a bucket, a lane, a metric's label) brings a gateway
    down after weeks, and cannot be seen in minutes except as a line that keeps rising. The samples of a
    gauge, `resident_bytes` by default, are cut into four quarters, the first of which is warming up; the
    median of the last may exceed that of the second by `max_growth`, or by `slack`. One that rose by more,
    from each quarter to the next, has failed. Without samples nothing follows.
    """

    stalls_only_worsen = True
    needs_samples = ("resident_bytes",)

    gauge: str = Field(default="resident_bytes", min_length=1)
    """A value in the gateway's samples; `resident_bytes` is that of its process."""
    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase. They should be alike but for who the tenants are."""
    max_growth: float = Field(default=0.1, ge=0)
    """Part of the second quarter's median, 0.1 is 10 %."""
    slack: float = Field(default=16 * MIB, ge=0)
    """In the gauge's unit: growth that is never held against a gateway."""

    def judge(self, run: Run) -> Verdict:
        """The medians of the quarters."""
        readings = self._readings(run)
        lasted_s = (readings[-1][0] - readings[0][0]) / NS if readings else 0.0
        if len(readings) < LEAST_SAMPLES or lasted_s < LEAST_S:
            return undecided(
                self,
                f"{len(readings):,} samples of the gateway's {self.gauge} over {lasted_s:.0f} s: at least "
                f"{LEAST_SAMPLES} over {LEAST_S:g} s are needed (of a target whose file names its process)",
                n=len(readings),
            )
        quarters = _quarters(readings)
        level, last = quarters[1].median, quarters[-1].median
        growth, bound = last - level, max(self.slack, self.max_growth * level)
        rising = all(b.median > a.median for a, b in pairwise(quarters[1:]))
        failed = growth > bound
        if failed and not rising:
            status = Status.INCONCLUSIVE
        else:
            status = Status.FAILED if failed else Status.PASSED
        medians = ", ".join(self._shown(quarter.median) for quarter in quarters)
        because = (
            f"the medians of {self.gauge} in the quarters of the run were {medians}: it grew by "
            f"{self._shown(growth)} after the second, bound {self._shown(bound)}"
        )
        if status is Status.INCONCLUSIVE:
            because += ", but not steadily: a longer run would show whether it stays there"
        return conclude(
            self,
            status,
            because,
            measured=max(0.0, growth),
            bound=bound,
            unit=self._unit,
            n=len(readings),
            evidence=[
                Evidence(note=f"{self.gauge}: {self._shown(q.median)}", at_ns=q.middle_ns) for q in quarters
            ],
            details=self._details(run, readings, quarters),
        )

    def _readings(self, run: Run) -> list[tuple[int, float]]:
        windows = [run.profile.phase_window_ns(name) for name in self.phases or counted_phases(run)]
        return sorted(
            (sample.at_ns, sample.values[self.gauge])
            for sample in run.samples
            if sample.source == "gateway"
            and self.gauge in sample.values
            and any(start <= sample.at_ns < end for start, end in windows)
        )

    @property
    def _unit(self) -> str:
        return "bytes" if self.gauge.endswith("_bytes") else self.gauge

    def _shown(self, value: float) -> str:
        return f"{value / MIB:.1f} MiB" if self._unit == "bytes" else f"{value:.0f}"

    def _details(
        self, run: Run, readings: Sequence[tuple[int, float]], quarters: Sequence[_Quarter]
    ) -> dict[str, Any]:
        tenants = [
            len({r.tenant for r in run.records if r.due_ns <= quarter.middle_ns}) for quarter in quarters
        ]
        step = max(1, len(readings) // 120)
        return {
            "medians": [finite(quarter.median, 1) for quarter in quarters],
            "tenants_seen": tenants,
            "over_time": [[finite(at / NS), value] for at, value in readings[::step]],
        }

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """80 MiB, and another MiB every second."""
        return cls(), _run(mib_per_s=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Thirty samples."""
        return cls(), _run(mib_per_s=1, samples=30)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """It warms up by 20 MiB in ten seconds, and stays there."""
        return cls(), _run(mib_per_s=2, until_s=10)


class _Quarter(msgspec.Struct, frozen=True):
    middle_ns: int
    median: float


def _quarters(readings: Sequence[tuple[int, float]]) -> list[_Quarter]:
    """Equal numbers of samples each, so that a gap between phases does not make an empty one."""
    edges = [len(readings) * k // QUARTERS for k in range(QUARTERS + 1)]
    parts = [readings[left:right] for left, right in pairwise(edges)]
    return [_Quarter(part[len(part) // 2][0], percentile([value for _, value in part], 50)) for part in parts]


def _run(*, mib_per_s: float, until_s: float = 40.0, samples: int = 400) -> Run:
    """Forty seconds, a sample every 100 ms."""
    build = RunBuilder(profile(phases={"churn": 40.0}))
    for k in range(samples):
        at_s = k / 10
        resident = (80 + mib_per_s * min(at_s, until_s)) * MIB
        build.samples.append(
            Sample(at_ns=k * 100 * MS, source="gateway", values={"resident_bytes": resident})
        )
    return build.run()
