"""Does the health page answer, fast and always, while the gateway is flooded?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from agentload.checks import Check, Need, PhaseName
from agentload.evidence.durable import gateway_faults
from agentload.evidence.health_samples import STATUS, TOOK_S, sample, samples_of
from agentload.evidence.history import counted_phases
from agentload.evidence.statistics import percentile
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, percent_of, seconds, undecided
from agentload.model import NS, Evidence, Run, Sample, Status, Verdict

LEAST_PROBES = 10
STALL_RECOVERY_NS = NS // 2


class HealthProbe(Check):
    """Passes when the gateway's health page answers 2xx within `within_s`, every time, whatever the load.

    An orchestrator asks it every few seconds and kills what does not answer. A page that stands in line with
    the requests, or counts against a limit of connections, is refused or late just when the gateway is full;
    then a flood takes down the gateway itself, and its neighbours after it. It is asked once a second from
    outside the load, each time over a new connection. While a fault of the profile kills the gateway or holds
    it up, and `grace_s` after that, nothing is expected; nor while the machine stood still. A target without
    `health:` in its file is not judged. Where a gateway has two pages, name the one by which it is killed:
    the other, which says whether it wants more traffic, may refuse in a flood, and rightly so.
    """

    stalls_only_worsen = True
    needs = frozenset({Need.HEALTH_PAGE})

    within_s: float = Field(default=1.0, gt=0, le=5)
    """From the probe's connection to its whole answer. (Kubernetes' own default.)"""
    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase. Say those of the flood to judge these alone."""
    grace_s: float = Field(default=3.0, ge=0)
    """After a fault of the gateway, for its start or for what has piled up."""

    def judge(self, run: Run) -> Verdict:
        """Every probe by itself: one that fails is one too many."""
        if not run.health_page:
            return undecided(
                self,
                "the target names no health page, so none was asked: say `health: /healthz` in its file",
            )
        probes = self._counted(run)
        if sum(map(_seconds_of, probes)) < LEAST_PROBES:
            return undecided(
                self,
                f"the health page was asked {len(probes):,} times in the phases that count, outside faults "
                f"of the gateway and stalls of the machine: at least {LEAST_PROBES} are needed, one a second",
                n=len(probes),
            )
        bad = [one for one in probes if self._wrong(one)]
        took_s = [one.values[TOOK_S] for one in probes if not _unanswered(one)]
        because = f"{percent_of(len(bad), len(probes))} probes of the health page failed: {self._kinds(bad)}"
        if not bad:
            slowest = seconds(max(took_s) * NS)
            because = f"the health page answered each of {len(probes):,} times, within {slowest}"
        return conclude(
            self,
            Status.FAILED if bad else Status.PASSED,
            because,
            measured=len(bad),
            bound=0,
            unit="probes",
            n=len(probes),
            evidence=[Evidence(note=self._note(one), at_ns=one.at_ns) for one in bad],
            details={
                "slowest_ms": finite(1e3 * max(took_s)) if took_s else None,
                "median_ms": finite(1e3 * percentile(took_s, 50)) if took_s else None,
                "failed": len(bad),
            },
        )

    def _counted(self, run: Run) -> list[Sample]:
        """The probes of the phases that count, without those that something else explains."""
        windows = [run.profile.phase_window_ns(phase) for phase in self.phases or counted_phases(run)]
        grace_ns = round(self.grace_s * NS)
        excused = [(fault.start_ns, fault.end_ns + grace_ns) for fault in gateway_faults(run)]
        excused += [(stall.start_ns, stall.end_ns + STALL_RECOVERY_NS) for stall in run.health.stalls]
        return [
            one
            for one in samples_of(run.samples)
            if any(start <= one.at_ns < end for start, end in windows)
            if not any(start <= _ended_ns(one) and one.at_ns < end for start, end in excused)
        ]

    def _wrong(self, probe: Sample) -> str | None:
        status, took_s = round(probe.values[STATUS]), probe.values[TOOK_S]
        if took_s > self.within_s:
            return f"no answer within {self.within_s:g} s"
        if _unanswered(probe):
            return "connection refused or broken"
        return None if 200 <= status < 300 else f"answered {status}"

    def _note(self, probe: Sample) -> str:
        return f"{self._wrong(probe)}, after {seconds(probe.values[TOOK_S] * NS)}"

    def _kinds(self, bad: Sequence[Sample]) -> str:
        """`3 × answered 503, 1 × no answer within 1 s`."""
        kinds = [str(self._wrong(one)) for one in bad]
        return ", ".join(f"{kinds.count(kind):,} × {kind}" for kind in dict.fromkeys(kinds))

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """In eight seconds of flood the page is refused, as every request beyond the limit is."""
        return cls(), _run(flood_status=503)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Six probes."""
        return cls(), _run(flood_status=200, probes=6)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """It answers in 2 ms, in the flood in 80 ms."""
        return cls(), _run(flood_status=200)


def _unanswered(probe: Sample) -> bool:
    return probe.values[STATUS] == 0


def _seconds_of(probe: Sample) -> int:
    """For how many of its kind a probe stands: while one is waited for, no other is sent."""
    return max(1, math.ceil(probe.values[TOOK_S]))


def _ended_ns(probe: Sample) -> int:
    return probe.at_ns + round(probe.values[TOOK_S] * NS)


def _run(*, flood_status: int, probes: int = 20) -> Run:
    """Twenty seconds, the flood from 8 to 16 s."""
    build = RunBuilder(profile(phases={"calm": 8.0, "flood": 8.0, "after": 4.0}))
    for k in range(200):
        build.answered("a", 100 * k)
    for k in range(probes):
        flooded = 8 <= k < 16
        sent_ns, took_ms = k * 1_000 * MS, 80 if flooded else 2
        build.samples.append(sample(sent_ns, sent_ns + took_ms * MS, flood_status if flooded else 200))
    return build.run()
