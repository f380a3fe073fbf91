"""Is work whose holder has died taken over in time, and poison given up?"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.durable import gateway_faults, orders, step_of
from agentload.evidence.durable_scene import JobScene
from agentload.evidence.job_calls import of_jobs
from agentload.evidence.verdicts import conclude, plural, seconds, undecided
from agentload.faults import FaultWindow
from agentload.model import NS, Evidence, JobRecord, Run, Status, ToolRecord, Verdict
from agentload.promises import Truth
from agentload.scheduler.jobs_config import JobsSettings


class _Orphan(NamedTuple):
    call: ToolRecord
    fault: FaultWindow
    late_ns: float
    """From when the gateway was back for good until something was done for the job; infinite: never."""


class LeaseReclaim(Check):
    """Passes when orphaned steps are taken over within lease + `within_s`, and poison stops in time.

    A step that was under way when its gateway was killed, or stood still for longer than the lease lasts, has
    nobody who works for it: it must be called again, or its job go on or end, at most a lease and `within_s`
    after the gateway is back (for good: where the next fault comes sooner, after that one). A step whose
    holder lives must not be taken from it, however long it takes: no call is given up outside the faults,
    before its deadline. And a step that fails whenever it is tried is called no more often than its job has
    attempts. Counted are calls of tools, in their own ledger; where a job is one chat call, those calls. At
    least `min_orphans` steps must have been orphaned.
    """

    rests_on = frozenset({Truth.JOB_LEASES})
    needs = frozenset({Need.JOBS, Need.JOB_CALLS, Need.GATEWAY_FAULTS})

    within_s: float = Field(default=5.0, gt=0)
    """Above the lease: a gateway that is started takes connections after about a second."""
    min_orphans: int = Field(default=3, ge=1)

    def judge(self, run: Run) -> Verdict:
        """Look at what was under way at each fault, and at every step's calls."""
        settings = run.profile.gateway.jobs or JobsSettings()
        bound_ns = round((settings.lease_s + self.within_s) * NS)
        jobs = {job.seq: job for job in run.jobs}
        calls, faults = of_jobs(run), gateway_faults(run)
        orphans = [
            one
            for index, fault in enumerate(faults)
            for one in _orphans(fault, _calm_from(faults[index:], bound_ns), jobs, calls)
        ]
        late = [one for one in orphans if one.late_ns > bound_ns]
        poison = _beyond_attempts(jobs, calls, settings.max_attempts)
        stolen = _stolen(run, jobs, calls, bound_ns)
        bad = len(late) + len(poison) + len(stolen)
        if not bad and len(orphans) < self.min_orphans:
            return undecided(
                self,
                f"only {plural(len(orphans), 'step')} under way when the gateway was hit: at least "
                f"{self.min_orphans} are needed",
                n=len(orphans),
            )
        slowest = max((one.late_ns for one in orphans), default=0.0)
        said = "never" if slowest == float("inf") else seconds(slowest)
        because = (
            f"{plural(len(orphans), 'step')} orphaned, the slowest taken over {said} after the gateway was "
            f"back ({seconds(bound_ns)} allowed); {len(late):,} too late, {len(stolen):,} taken from a "
            f"holder that lived, {len(poison):,} called more often than its job had attempts"
        )
        return conclude(
            self,
            Status.FAILED if bad else Status.PASSED,
            because,
            measured=bad,
            bound=0,
            unit="steps",
            n=len(orphans),
            evidence=[
                *(_shown(one.call, "nobody took it over in time") for one in late),
                *(_shown(one, "called again though its attempts were used up") for one in poison),
                *(_shown(one, "given up though its holder lived") for one in stolen),
            ],
            details={
                "stands_under_any_load": bool(bad),
                "orphans": len(orphans),
                "slowest_takeover_s": None if slowest == float("inf") else round(slowest / NS, 3),
                "late": len(late),
                "poison": len(poison),
                "taken_from_the_living": len(stolen),
            },
        )

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """A step was under way when the gateway was killed, and nobody ever calls it again."""
        return cls(), _run(forgotten=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Nothing was under way."""
        return cls(), _run(orphans=0)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Four steps are taken over a second after the gateway is back."""
        return cls(), _run()


def _calm_from(faults: list[FaultWindow], bound_ns: int) -> int:
    """The end of the first fault, or of the last of those that follow sooner than something is due."""
    calm_ns = faults[0].end_ns
    for later in faults[1:]:
        if later.start_ns - calm_ns >= bound_ns:
            break
        calm_ns = max(calm_ns, later.end_ns)
    return calm_ns


def _orphans(
    fault: FaultWindow, back_ns: int, jobs: dict[int, JobRecord], calls: dict[str, list[ToolRecord]]
) -> list[_Orphan]:
    found: list[_Orphan] = []
    for ref, same in calls.items():
        job = jobs.get(_seq(ref))
        under_way = [call for call in same if call.arrived_ns < fault.start_ns < _ended(call)]
        if job is not None and under_way:
            later = [
                call.arrived_ns
                for index in range(job.steps)
                for call in calls.get(f"{job.seq}:{index}", ())
                if call.arrived_ns >= fault.start_ns
            ]
            done = [job.ended_ns] if job.ended_ns is not None and job.ended_ns >= fault.start_ns else []
            first = min([*later, *done], default=None)
            late_ns = float("inf") if first is None else max(0, first - back_ns)
            found.append(_Orphan(under_way[-1], fault, late_ns))
    return found


def _beyond_attempts(
    jobs: dict[int, JobRecord], calls: dict[str, list[ToolRecord]], most: int
) -> list[ToolRecord]:
    """The first call too many of each step."""
    found: list[ToolRecord] = []
    for ref, same in calls.items():
        job = jobs.get(_seq(ref))
        allowed = most if job is None or job.max_attempts is None else min(job.max_attempts, most)
        if len(same) > allowed:
            found.append(same[allowed])
    return found


def _stolen(
    run: Run, jobs: dict[int, JobRecord], calls: dict[str, list[ToolRecord]], bound_ns: int
) -> list[ToolRecord]:
    """Calls that were given up though no fault had happened and time was left."""
    faults, ordered = gateway_faults(run), orders(run.profile)
    found: list[ToolRecord] = []
    for ref, same in calls.items():
        job, step = jobs.get(_seq(ref)), step_of(ordered, jobs, ref)
        tool = None if step is None else step.tool
        if job is None or tool is None or tool.timeout_s is not None or tool.hang_first:
            continue
        found += [
            call
            for call in same
            if call.ending == "cancelled"
            and _ended(call) < min(job.deadline_ns, run.profile.duration_ns)
            and not any(one.start_ns <= _ended(call) <= one.end_ns + bound_ns for one in faults)
        ]
    return found


def _ended(call: ToolRecord) -> float:
    return float("inf") if call.ended_ns is None else call.ended_ns


def _seq(ref: str) -> int:
    seq = ref.partition(":")[0]
    return int(seq) if seq.isdecimal() else -1


def _shown(call: ToolRecord, note: str) -> Evidence:
    return Evidence(
        note=f"call {call.call} of {call.tool}: {note}", seq=_seq(call.ref or ""), at_ns=call.arrived_ns
    )


def _run(*, orphans: int = 4, forgotten: int = 0) -> Run:
    scene = JobScene()
    for k in range(40):
        under_way = k < orphans
        at_ms = 4_500 + k if under_way else 7_000 + 100 * k
        job = scene.job(at_ms, None if k < forgotten else 2_500)
        if under_way:
            scene.call(job, at_ms + 10, 5_000 - at_ms, ending="cancelled")
            if k >= forgotten:
                scene.call(job, 6_500, 50, effect=False)
        else:
            scene.call(job, at_ms + 10, 150)
    return scene.run()
