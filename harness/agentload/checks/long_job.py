"""Do long jobs get done, and without holding up the short ones?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agentload.checks import Check, PhaseName, TenantName
from agentload.checks.victim_latency import VictimLatency
from agentload.evidence.history import LogicalRequest, end_ns, latencies_ns, requests_of, tenant_names
from agentload.evidence.statistics import percentile
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, evidence_of, finite, listed, seconds, undecided
from agentload.model import NS, Outcome, Run, Status, Verdict

LEAST_LONG_JOBS = 3


class LongJob(Check):
    """Passes when long jobs complete within their bound and short jobs hardly notice them.

    Two opposite faults: a long or wide job that never gets its place because short ones always slip past, and
    short jobs stuck behind a long one at the head (or behind a tenant whose long jobs hold every slot). Every
    long job that was wanted early enough must be answered within `completes_within_s`, counted from its
    intended start; the short jobs' error-adjusted p95 is compared with a phase without long jobs, as
    `victim-latency` does it.
    """

    long: tuple[TenantName, ...] = ("long",)
    """Tenants or groups with the long jobs."""
    short: tuple[TenantName, ...] = ()
    """By default all others that are active in both phases."""
    baseline: PhaseName = "baseline"
    """The short jobs alone."""
    mixed: PhaseName = "mixed"
    completes_within_s: float = Field(default=30.0, gt=0)
    max_ratio: float = Field(default=2.0, gt=1)
    max_single_ratio: float = Field(default=3.0, gt=1)
    grace_ms: float = Field(default=20.0, ge=0)
    """Differences of the short jobs' p95 up to this are never held against a gateway."""

    def judge(self, run: Run) -> Verdict:
        """First the long jobs, then the short ones."""
        jobs = self._decided(run)
        late = [job for job in jobs if job.latency_ns > self.completes_within_s * NS]
        short = self._short_jobs(run)
        details = self._details(jobs, late, short)
        n = len(jobs) + short.n
        if late:
            return self._late(jobs, late, n, details)
        if short.status is not Status.FAILED and len(jobs) < LEAST_LONG_JOBS:
            return undecided(
                self,
                f"only {len(jobs):,} long jobs ended, or had the {self.completes_within_s:g} s that they may "
                f"take: at least {LEAST_LONG_JOBS} are needed",
                n=n,
                details=details,
            )
        if short.status is Status.INCONCLUSIVE:
            return undecided(self, f"the short jobs: {short.because}", n=n, details=details)
        beside = short.because.removeprefix("with the noise ").replace("the victims'", "the short jobs'")
        return conclude(
            self,
            short.status,
            f"{self._in_time(jobs)}; beside them, {beside}",
            measured=float("inf") if short.censored else short.measured,
            bound=short.bound,
            unit=short.unit,
            n=n,
            evidence=short.evidence,
            details=details,
        )

    def _decided(self, run: Run) -> list[LogicalRequest]:
        """The long jobs that were answered, or had their time."""
        start_ns, phase_end_ns = run.profile.phase_window_ns(self.mixed)
        last_ns = max(end_ns(run), phase_end_ns) - round(self.completes_within_s * NS)
        jobs = requests_of(run, tenant_names(run, self.long))
        return [
            job
            for job in jobs
            if start_ns <= job.first.first_due_ns < phase_end_ns
            and (job.answered or job.first.first_due_ns <= last_ns or _given_up(job))
        ]

    def _short_jobs(self, run: Run) -> Verdict:
        long = set(tenant_names(run, self.long))
        active = set(tenant_names(run, (), self.mixed))
        names = self.short or tuple(
            name for name in tenant_names(run, (), self.baseline) if name in active and name not in long
        )
        return VictimLatency(
            victims=names,
            baseline=self.baseline,
            noise=self.mixed,
            max_ratio=self.max_ratio,
            max_single_ratio=self.max_single_ratio,
            grace_ms=self.grace_ms,
        ).judge(run)

    def _late(
        self, jobs: Sequence[LogicalRequest], late: Sequence[LogicalRequest], n: int, details: dict[str, Any]
    ) -> Verdict:
        worst = max(late, key=lambda job: job.latency_ns)
        never = [job for job in late if not job.answered]
        took = f"the slowest took {seconds(worst.latency_ns)}"
        if never:
            took = f"{len(never):,} were never answered"
        return conclude(
            self,
            Status.FAILED,
            f"{len(late):,} of {len(jobs):,} long jobs ({listed(self.long)}) were not answered within "
            f"{self.completes_within_s:g} s; {took}",
            measured=worst.latency_ns / NS,
            bound=self.completes_within_s,
            unit="s",
            n=n,
            evidence=[evidence_of(job.last, _ending(job)) for job in late],
            details=details,
        )

    def _in_time(self, jobs: Sequence[LogicalRequest]) -> str:
        slowest = max(job.latency_ns for job in jobs) if jobs else 0.0
        return f"{len(jobs):,} long jobs took {seconds(slowest)} at most"

    def _details(
        self, jobs: Sequence[LogicalRequest], late: Sequence[LogicalRequest], short: Verdict
    ) -> dict[str, Any]:
        latencies = latencies_ns(jobs)
        return {
            "long": {
                "jobs": len(jobs),
                "late": len(late),
                "p50_s": finite(percentile(latencies, 50) / NS) if jobs else None,
                "max_s": finite(max(latencies) / NS) if jobs else None,
                "bound_s": self.completes_within_s,
            },
            "short": {"because": short.because, **short.details},
        }

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """The long jobs hold every slot: short ones take 400 ms instead of 50 ms."""
        return cls(completes_within_s=8), _run(short_wait_ms=350)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Two long jobs."""
        return cls(completes_within_s=8), _run(short_wait_ms=5, long_jobs=2)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Long jobs wait for each other, short ones hardly for them."""
        return cls(completes_within_s=8), _run(short_wait_ms=5)


def _given_up(job: LogicalRequest) -> bool:
    """Whether nothing more will come of it; one still open when the run ended was not given its time."""
    return job.last.final and job.last.outcome is not Outcome.UNFINISHED


def _ending(job: LogicalRequest) -> str:
    if job.answered:
        return f"{job.tenant}: took {seconds(job.latency_ns)}"
    how = f"{job.last.outcome} {job.last.status or job.last.reason or ''}".rstrip()
    return f"{job.tenant}: never answered, {how}"


def _run(*, short_wait_ms: float, long_jobs: int = 6) -> Run:
    build = RunBuilder(
        profile(
            phases={"baseline": 10.0, "mixed": 10.0},
            tenants={"short": 1.0, "long": 1.0},
            only={"long": ("mixed",)},
        )
    )
    for k in range(100):
        build.answered("short", 90 * k)
        build.answered("short", 10_000 + 90 * k, wait_ms=short_wait_ms)
    for k in range(long_jobs):
        build.answered("long", 10_000 + 200 * k, wait_ms=1_000 * k, service_ms=1_000, output_tokens=100)
    return build.run()
