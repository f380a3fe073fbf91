"""Is everything as before soon after a flood, an outage or a crash is over?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.evidence.history import LogicalRequest, answered_share, requests_of, tenant_names
from agentload.evidence.intervals import Interval
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, percent_of, seconds, undecided
from agentload.evidence.victims import Comparison, unsaturated
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict

LEAST_PER_BIN = 20


class Recovery(Check):
    """Passes when goodput is back at 90 % of what it was within `within_s` after the disturbance ended.

    Goodput is the share of the requests wanted in each stretch of `bin_s` that were answered in the end. It
    is back from the first stretch on that is good itself and good together with everything after it, and it
    must still be good at the end of the phase: a system that stays down although the load is as it was (its
    time goes into work that nobody waits for any more) is metastable. Coming back later, or never, fails.
    """

    stalls_only_worsen = True

    baseline: PhaseName = "baseline"
    """Before the disturbance, under the same load as afterwards."""
    after: PhaseName = "recovery"
    """The phase at whose beginning the disturbance ends."""
    disturbance: PhaseName | None = None
    """The phase of the disturbance; by default the one before `after`."""
    tenants: tuple[TenantName, ...] = ()
    """By default all that are active both before and after."""
    within_s: float = Field(default=5.0, gt=0)
    min_goodput: float = Field(default=0.9, gt=0, le=1)
    """Share of the baseline's goodput that counts as recovered."""
    bin_s: float = Field(default=1.0, gt=0)
    """Stretches are longer where that would leave fewer than 20 requests in one."""
    end_s: float = Field(default=5.0, gt=0)
    """The last so many seconds of the phase must be good by themselves."""

    def judge(self, run: Run) -> Verdict:
        """Goodput, stretch by stretch, from the end of the disturbance on."""
        names = self._names(run)
        window = run.profile.phase_window_ns(self.after)
        requests = requests_of(run, names)
        before = [r for r in requests if r.phase == self.baseline]
        after = [r for r in requests if window[0] <= r.first.first_due_ns < window[1]]
        doubt = self._doubt(before, after, window)
        if doubt:
            return undecided(self, doubt, n=len(after))
        level = self.min_goodput * answered_share(before)
        bins = _bins(after, window, self._bin_ns(len(after), window))
        back_ns = _back_at(bins, level)
        ending = [r for r in after if r.first.first_due_ns >= window[1] - round(self.end_s * NS)]
        found = _Finding(window, level, bins, back_ns, ending)
        if found.took_s <= self.within_s and (unmoved := self._undisturbed(run, names, before)):
            return undecided(self, unmoved, n=len(after), details=found.details())
        return self._conclude(found, before, after)

    def _names(self, run: Run) -> list[str]:
        active = set(tenant_names(run, (), self.after))
        return [name for name in tenant_names(run, self.tenants, self.baseline) if name in active]

    def _bin_ns(self, n: int, window: Interval) -> int:
        return max(round(self.bin_s * NS), (window[1] - window[0]) * LEAST_PER_BIN // max(1, n))

    def _doubt(
        self, before: Sequence[LogicalRequest], after: Sequence[LogicalRequest], window: Interval
    ) -> str | None:
        length_s = (window[1] - window[0]) / NS
        if length_s <= self.within_s:
            return f"'{self.after}' lasts {length_s:g} s, and recovery may take {self.within_s:g} s"
        if not (enough(len(before), 95) and enough(len(after), 95)):
            return (
                f"only {len(before):,} requests in '{self.baseline}' and {len(after):,} in '{self.after}': "
                "72 in each are needed"
            )
        if answered_share(before) < self.min_goodput:
            answered = percent_of(sum(r.answered for r in before), len(before))
            return f"in '{self.baseline}', before any disturbance, only {answered} requests were answered"
        return None

    def _undisturbed(self, run: Run, names: list[str], before: list[LogicalRequest]) -> str | None:
        """Why a good result proves nothing: nobody was refused, and nothing waited."""
        phases = [phase.name for phase in run.profile.phases]
        noise = self.disturbance or phases[max(0, phases.index(self.after) - 1)]
        during = [r for r in requests_of(run, names) if r.phase == noise]
        unanswered = sum(not request.answered for request in during)
        if unanswered > 0.01 * len(during):
            return None
        return unsaturated(run, Comparison(names, self.baseline, noise, before, during))

    def _conclude(
        self, found: _Finding, before: Sequence[LogicalRequest], after: Sequence[LogicalRequest]
    ) -> Verdict:
        lapsed = found.goodput_at_end < found.level
        if found.back_ns is None or lapsed:
            because = (
                f"in the last {self.end_s:g} s of '{self.after}' {100 * found.goodput_at_end:.0f} % of the "
                f"requests were answered, before the disturbance {100 * answered_share(before):.0f} %"
            )
        else:
            because = (
                f"{100 * found.level:.0f} % of the requests were answered again {seconds(found.took_s * NS)} "
                f"after the disturbance had ended, and {100 * found.goodput_at_end:.0f} % in the last "
                f"{self.end_s:g} s"
            )
        took_s = float("inf") if lapsed else found.took_s
        return conclude(
            self,
            Status.PASSED if took_s <= self.within_s else Status.FAILED,
            because,
            measured=took_s,
            bound=self.within_s,
            unit="s",
            n=len(after),
            evidence=found.evidence(),
            details=found.details(),
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Metastable: the flood has gone, and every request is still refused."""
        return cls(), _run(recovers_after_s=100)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Three requests a second."""
        return cls(), _run(recovers_after_s=2, per_s=3)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Two seconds after the flood all is well."""
        return cls(), _run(recovers_after_s=2)


class _Bin(msgspec.Struct, frozen=True):
    start_ns: int
    answered: int
    n: int


class _Finding(msgspec.Struct, frozen=True):
    window: Interval
    level: float
    bins: list[_Bin]
    back_ns: int | None
    ending: list[LogicalRequest]

    @property
    def took_s(self) -> float:
        return float("inf") if self.back_ns is None else (self.back_ns - self.window[0]) / NS

    @property
    def goodput_at_end(self) -> float:
        """Of the last seconds; where nobody wanted anything, of the last stretch in which somebody did."""
        return answered_share(self.ending) if self.ending else self.bins[-1].answered / self.bins[-1].n

    def evidence(self) -> list[Evidence]:
        bad = [one for one in self.bins if one.answered < self.level * one.n]
        return [
            Evidence(note=f"{percent_of(one.answered, one.n)} answered", at_ns=one.start_ns)
            for one in bad[-3:] or self.bins[:1]
        ]

    def details(self) -> dict[str, Any]:
        return {
            "level": finite(self.level, 4),
            "recovered_after_s": finite(self.took_s),
            "goodput_at_end": finite(self.goodput_at_end, 4),
            "goodput": [
                {"at_s": finite(one.start_ns / NS), "answered": one.answered, "n": one.n} for one in self.bins
            ],
        }


def _bins(requests: Sequence[LogicalRequest], window: Interval, width_ns: int) -> list[_Bin]:
    """Answered of wanted, by when they were wanted; stretches in which nobody wanted anything left out."""
    answered: dict[int, int] = {}
    wanted: dict[int, int] = {}
    for request in requests:
        index = (request.first.first_due_ns - window[0]) // width_ns
        wanted[index] = wanted.get(index, 0) + 1
        answered[index] = answered.get(index, 0) + request.answered
    return [_Bin(window[0] + i * width_ns, answered[i], wanted[i]) for i in sorted(wanted)]


def _back_at(bins: Sequence[_Bin], level: float) -> int | None:
    """The beginning of the first stretch that is good itself, and good together with all that follow."""
    back_ns: int | None = None
    answered = wanted = 0
    for one in reversed(bins):
        answered, wanted = answered + one.answered, wanted + one.n
        if answered >= level * wanted and one.answered >= level * one.n:
            back_ns = one.start_ns
    return back_ns


def _run(*, recovers_after_s: float, per_s: int = 20) -> Run:
    """Ten seconds each: all well, a flood that is refused, and what comes after it."""
    phases = {"baseline": 10.0, "flood": 10.0, "recovery": 10.0}
    build = RunBuilder(profile(phases=phases, tenants={"a": 1.0}))
    for k in range(30 * per_s):
        at_ms = 1_000 * k / per_s
        if at_ms < 10_000 or at_ms >= 20_000 + 1_000 * recovers_after_s:
            build.answered("a", at_ms)
        elif k % 2:
            build.refused("a", at_ms)
        else:
            build.ended("a", at_ms, Outcome.ABANDONED)
    return build.run()
