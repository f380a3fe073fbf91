"""Do the position and the ETA that the client of a job is told come true?"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.durable import accepted, gateway_faults, open_at, touched
from agentload.evidence.durable_scene import JobScene
from agentload.evidence.verdicts import conclude, percent_of, plural, status_of_share, undecided
from agentload.model import NS, Evidence, JobRecord, Run, Verdict
from agentload.promises import Truth


class EtaHonest(Check):
    """Passes when jobs that no fault touched end about when their clients were told, from their place.

    A client plans by the first ETA that it is told: one that leaves the queue out makes it come back too soon
    again and again, one that is made up makes it leave. An ETA has come true when the job was seen completed
    at most `within_s` + `share_of_eta` × ETA earlier or later (and one poll). A position has come true when
    as many jobs of its class as it says were open before it. At most `wrong_share` of either may be wrong.
    """

    rests_on = frozenset({Truth.JOB_ETAS})
    needs = frozenset({Need.JOBS, Need.ETAS})

    within_s: float = Field(default=2.0, gt=0)
    share_of_eta: float = Field(default=0.5, ge=0)
    wrong_share: float = Field(default=0.1, ge=0, lt=1)
    after_s: float = Field(default=5.0, ge=0)
    """How long after a fault its effects on others are not held against the gateway."""
    min_jobs: int = Field(default=50, ge=1)

    def judge(self, run: Run) -> Verdict:
        """Compare what was told with what came."""
        faults = gateway_faults(run)
        jobs = [
            job
            for job in accepted(run)
            if job.state == "completed" and job.attempts == 0 and not touched(job, faults, self.after_s)
        ]
        told = [job for job in jobs if job.eta_s is not None]
        if (all_jobs := len(accepted(run))) and not any(job.eta_s is not None for job in accepted(run)):
            mend = "jobs.eta_s of the target file says where one stands"
            return undecided(self, f"none of {plural(all_jobs, 'job')} was told an ETA: {mend}")
        if len(told) < self.min_jobs:
            return undecided(
                self,
                f"only {len(told):,} jobs that no fault touched were told an ETA: {self.min_jobs} are needed",
                n=len(told),
            )
        errors = {job.seq: _error_s(job) for job in told}
        wrong = [job for job in told if abs(errors[job.seq]) > self._allowed_s(run, job)]
        ahead = [job for job in told if (job.position or 0) > 1 + _open_before(job, run.jobs)]
        worst = max(len(wrong), len(ahead))
        status = status_of_share(worst, len(told), self.wrong_share)
        waited = sum((job.position or 0) > 1 for job in told)
        errors_s = sorted(abs(error) for error in errors.values())
        because = (
            f"of {len(told):,} jobs that no fault touched ({waited:,} told to wait behind others), "
            f"the ETA of {percent_of(len(wrong), len(told))} was wrong, "
            f"the position of {percent_of(len(ahead), len(told))}"
        )
        return conclude(
            self,
            status,
            because,
            measured=round(100 * worst / len(told), 2),
            bound=100 * self.wrong_share,
            unit="% wrong",
            n=len(told),
            evidence=[
                Evidence(
                    note=f"{job.tenant}: told {job.eta_s:.2f} s at position {job.position}, "
                    f"came {errors[job.seq]:+.2f} s off",
                    seq=job.seq,
                    at_ns=job.told_ns,
                )
                for job in sorted(wrong or ahead, key=lambda one: -abs(errors[one.seq]))
            ],
            details={
                "median_error_s": round(errors_s[len(errors_s) // 2], 3),
                "p95_error_s": round(errors_s[int(0.95 * (len(errors_s) - 1))], 3),
                "waited": waited,
                "wrong_etas": len(wrong),
                "wrong_positions": len(ahead),
            },
        )

    def _allowed_s(self, run: Run, job: JobRecord) -> float:
        poll_s = next((t.job.poll_s for t in run.profile.tenants if t.name == job.tenant and t.job), 0.0)
        return self.within_s + self.share_of_eta * (job.eta_s or 0.0) + poll_s

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Everybody is told half a second, and half of them wait for eight."""
        return cls(), _run(took_ms=8_000)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten jobs."""
        return cls(), _run(jobs=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Everybody is told half a second, and that is what it takes."""
        return cls(), _run()


def _error_s(job: JobRecord) -> float:
    """Seconds later than told."""
    assert job.ended_ns is not None
    assert job.told_ns is not None
    return (job.ended_ns - job.told_ns) / NS - (job.eta_s or 0.0)


def _open_before(job: JobRecord, jobs: Sequence[JobRecord]) -> int:
    """Other jobs of its class that may have been ahead when it was told: open then, as their clients know, or
    sent and not yet answered."""
    at_ns = job.told_ns or 0
    return sum(
        other.seq != job.seq
        and other.service_class == job.service_class
        and (
            open_at(other, at_ns)
            or (other.sent_ns is not None and other.sent_ns <= at_ns <= _accepted(other))
        )
        for other in jobs
    )


def _accepted(job: JobRecord) -> float:
    return float("inf") if job.accepted_ns is None else job.accepted_ns


def _run(*, jobs: int = 80, took_ms: float = 550) -> Run:
    scene = JobScene(killed=False)
    for k in range(jobs):
        scene.job(100 * k, 550 if k % 2 else took_ms, eta_s=0.5)
    return scene.run()
