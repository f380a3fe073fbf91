"""Does every job that was accepted end, whatever becomes of the gateway?"""

from __future__ import annotations

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.durable import accepted, gateway_faults, open_at
from agentload.evidence.durable_scene import JobScene
from agentload.evidence.lost_jobs import late_jobs, lost_jobs
from agentload.evidence.verdicts import conclude, plural, undecided
from agentload.model import Evidence, JobRecord, Run, Status, Verdict


class NothingLost(Check):
    """Passes when every job that was given a 202 ends in a terminal state, and stays ended as it was told.

    A 202 is a promise: from then on the client does not keep the work. A gateway that answers before the row
    is safe, that forgets what it had begun, or that tells of a result before that is safe, breaks it when it
    is killed. Looked at is every job accepted in a counted phase: it is lost when the gateway, asked
    after its deadline, shows no terminal state, or does not know it, or shows another end later. None is
    allowed. A gateway of which no deadlines are declared may be late: a job that it still shows as open is
    lost there only if a later one of the same tenant has ended. Where the profile kills the gateway, at least
    `min_open` jobs must have been open then.
    """

    needs = frozenset({Need.JOBS})
    zero_tolerance = True

    min_jobs: int = Field(default=50, ge=1)
    min_open: int = Field(default=3, ge=0)

    def judge(self, run: Run) -> Verdict:
        """Count the jobs that did not end, and those that did not stay ended."""
        jobs = accepted(run)
        unended = [job for job in jobs if job.state is None]
        late, lost = late_jobs(run), lost_jobs(run)
        changed = [job for job in jobs if job.relapsed]
        undone = len(unended) - len(lost)
        faults = gateway_faults(run)
        exposed = sum(any(open_at(job, fault.start_ns) for fault in faults) for job in jobs)
        if not lost and not changed:
            too_few = self._too_few(len(jobs), exposed, bool(faults), undone, len(late))
            if too_few is not None:
                return undecided(self, too_few, n=len(jobs))
        bad = len(lost) + len(changed)
        because = (
            f"{plural(len(jobs), 'job')} accepted, {exposed:,} of them open when the gateway was hit; "
            f"{len(lost):,} never ended, {len(changed):,} ended and then had another end"
        )
        return conclude(
            self,
            Status.FAILED if bad else Status.PASSED,
            because,
            measured=bad,
            bound=0,
            unit="jobs",
            n=len(jobs),
            evidence=[_evidence(job) for job in [*lost, *changed]],
            details={
                "accepted": len(jobs),
                "open_at_faults": exposed,
                "posts_again": sum(job.posts - 1 for job in jobs),
                "states": _states(jobs),
            },
        )

    def _too_few(self, n: int, exposed: int, faults: bool, undone: int, late: int) -> str | None:
        if late:
            return (
                f"{plural(late, 'job')} had not ended long after the deadline and were still shown, "
                "and the target declares no deadlines: ask less of it (--scale), or give its jobs longer "
                "(deadline_s)"
            )
        if undone:
            return (
                f"{plural(undone, 'job')} could not be asked for after the deadline, before the run ended: "
                "give it a longer drain_s"
            )
        if n < self.min_jobs:
            return f"only {plural(n, 'job')} accepted: at least {self.min_jobs} are needed"
        if faults and exposed < self.min_open:
            return f"only {exposed:,} jobs were open when the gateway was hit: {self.min_open} are needed"
        return None

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """One of eighty jobs was accepted, and is never heard of again."""
        return cls(), _run(lost=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten jobs."""
        return cls(), _run(jobs=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Eighty jobs through one kill; all end."""
        return cls(), _run()


def _states(jobs: list[JobRecord]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.state or "unknown"] = counts.get(job.state or "unknown", 0) + 1
    return dict(sorted(counts.items()))


def _evidence(job: JobRecord) -> Evidence:
    wrong = ", ".join(f"{count:,} × {what}" for what, count in sorted(job.poll_faults.items()))
    seen = f"told of its end ({job.state}) and then of another" if job.relapsed else "never seen to end"
    note = f"{job.tenant}: {job.id} was accepted, and {seen}" + (f"; polls: {wrong}" if wrong else "")
    return Evidence(note=note, seq=job.seq, at_ns=job.accepted_ns)


def _run(*, jobs: int = 80, lost: int = 0) -> Run:
    scene = JobScene()
    for k in range(jobs):
        scene.job(100 * k, None if k < lost else 1_500)
    return scene.run()
