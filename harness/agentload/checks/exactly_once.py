"""Does every side effect of a job come once, and is the result that of the latest delivery?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.attribution import untraced
from agentload.evidence.durable import accepted, gateway_faults, orders
from agentload.evidence.durable_scene import JobScene
from agentload.evidence.job_calls import are_chats, known_again, of_jobs, twice_done
from agentload.evidence.lost_jobs import lost_jobs
from agentload.evidence.verdicts import conclude, plural, undecided
from agentload.model import NS, Evidence, JobRecord, JobStep, Run, Status, ToolRecord, Verdict


class _Wrong(NamedTuple):
    note: str
    ref: str
    at_ns: int


class ExactlyOnce(Check):
    """Passes when each step with a side effect has it exactly once, and no stale delivery's result wins.

    A step is delivered again when its holder has died or has not been heard of, and the tool that it calls
    cannot know that but by its idempotency key: one that changes with the delivery charges the card twice.
    And a former holder that comes back late must not have its result taken while another has the job. Counted
    is in the tools' own ledger, by the client's name of the step (`ref`): effects of a step beyond the first;
    steps of completed jobs without their effect; and steps whose result is not that of their last call. None
    is allowed. At least `min_repeats` steps must have been called more than once, else nothing was shown.

    A gateway that knows no steps of ours is given jobs of one chat call. Then the call is the effect, once it
    has been answered whole: one that a kill cut off is made again rightly. Whoever is killed within
    `commit_s` of such an answer cannot know of it, and is forgiven; so is a job that was posted again to a
    gateway of which no idempotency key is known.
    """

    needs = frozenset({Need.JOBS, Need.JOB_CALLS})
    zero_tolerance = True

    min_repeats: int = Field(default=3, ge=1)
    commit_s: float = Field(default=0.25, ge=0, le=10)
    """Within which the gateway may write down what came of a chat call."""

    def judge(self, run: Run) -> Verdict:
        """Count effects and winners by step."""
        if (nothing_seen := _nothing_seen(run)) is not None:
            return undecided(self, nothing_seen)
        jobs, calls = {job.seq: job for job in run.jobs}, of_jobs(run)
        effects = {ref: sum(one.effect_ns is not None for one in same) for ref, same in calls.items()}
        twice = self._twice(run, jobs, calls)
        missing = _missing(run, effects)
        stale = _stale(run.jobs, calls)
        repeats = sum(
            len(same) > 1 and all(one.side_effect for one in same) and _job_of(ref, jobs) is not None
            for ref, same in calls.items()
        )
        wrong = [*twice, *missing, *stale]
        if not wrong and _untraced(run):
            said = f"{run.unattributed:,} of {len(run.ledger):,} provider calls cannot be traced to a job"
            return undecided(self, f"{said}: at most 1 % may be such", n=repeats)
        if not wrong and repeats < self.min_repeats:
            return undecided(self, self._too_few(repeats, run), n=repeats)
        counts = {
            "calls": sum(map(len, calls.values())),
            "effects": sum(effects.values()),
            "steps_called_again": repeats,
            "effects_more_than_once": len(twice),
            "effects_missing": len(missing),
            "stale_winners": len(stale),
        }
        others = Counter(job.state or "not ended" for job in accepted(run) if job.state != "completed")
        return conclude(
            self,
            Status.FAILED if wrong else Status.PASSED,
            _because(counts, len(calls), chats=are_chats(run.profile)) + _owed_nothing(others),
            measured=len(wrong),
            bound=0,
            unit="steps",
            n=len(calls),
            evidence=[Evidence(note=one.note, seq=_seq(one.ref), at_ns=one.at_ns) for one in wrong],
            details={**counts, "jobs_not_completed": dict(others)},
        )

    def _twice(
        self, run: Run, jobs: dict[int, JobRecord], calls: dict[str, list[ToolRecord]]
    ) -> list[_Wrong]:
        """Steps that had their effect more than once, where that is not forgiven."""
        chats, faults, commit_ns = are_chats(run.profile), gateway_faults(run), round(self.commit_s * NS)
        found: list[_Wrong] = []
        for ref, same in calls.items():
            count, job = sum(one.effect_ns is not None for one in same), _job_of(ref, jobs)
            forgiven = chats and not (
                job is not None and known_again(job) and twice_done(same, faults, commit_ns)
            )
            if count > 1 and not forgiven:
                note = f"{count} effects of one step, in {len(same)} calls"
                found.append(_Wrong(note, ref, same[-1].arrived_ns))
        return found

    def _too_few(self, repeats: int, run: Run) -> str:
        said = plural(repeats, "job") if are_chats(run.profile) else plural(repeats, "step")
        if not are_chats(run.profile):
            said += " with a side effect"
        few = f"only {said} called more than once: at least {self.min_repeats} are needed"
        if lost := len(lost_jobs(run)):
            gone = f"{plural(lost, 'accepted job')} never ended, and lost work is never called again"
            return f"{few}; {gone}: mend what nothing-lost shows first"
        return f"{few} (kill the gateway under more load)"

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """A step is called again after the kill, with another key: its effect comes twice."""
        return cls(), _run(twice=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """No step was ever called again."""
        return cls(), _run(repeated=0)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """Five steps are called again, and have their effect once."""
        return cls(), _run()


def _nothing_seen(run: Run) -> str | None:
    """Why our provider cannot say what was done."""
    if not are_chats(run.profile):
        return None if run.tools else "our provider saw no call of a tool: is `tool_url` set to it?"
    if not run.ledger_available:
        return (
            f"rests on our provider's ledger, and the run has none: {run.no_ledger_because or 'it is lost'}"
        )
    if not of_jobs(run):
        return "our provider saw no call that is known to be of a job: does {prompt} reach it unchanged?"
    return None


def _untraced(run: Run) -> bool:
    """Whether calls of which nobody knows whose they are may be some of the jobs'."""
    return are_chats(run.profile) and untraced(run)


def _missing(run: Run, effects: dict[str, int]) -> list[_Wrong]:
    """Steps of completed jobs without their effect, where every effect would have been seen."""
    chats, ordered = are_chats(run.profile), orders(run.profile)
    return [
        _Wrong("completed without its effect", ref, job.ended_ns or 0)
        for job in run.jobs
        if job.state == "completed" and not _untraced(run)
        for ref in _wanted(job, ordered[job.tenant].steps, chats=chats)
        if not effects.get(ref)
    ]


def _because(counts: dict[str, int], steps: int, *, chats: bool) -> str:
    again, twice, missing = (
        counts[name] for name in ("steps_called_again", "effects_more_than_once", "effects_missing")
    )
    if chats:
        return (
            f"{plural(counts['effects'], 'whole answer')} for {plural(steps, 'job')}, {again:,} of them "
            f"called again; {twice:,} were answered once more for nothing, {missing:,} never"
        )
    return (
        f"{plural(counts['effects'], 'side effect')} of {plural(steps, 'step')}, {again:,} of them called "
        f"again; {twice:,} came more than once, {missing:,} not at all, "
        f"{plural(counts['stale_winners'], 'stale winner')}"
    )


def _owed_nothing(others: Mapping[str, int]) -> str:
    """Which jobs are not among those that must have had their effect; empty where all completed."""
    said = ", ".join(f"{count:,} {state}" for state, count in sorted(others.items()))
    return f"; jobs that did not complete are owed nothing ({said})" if said else ""


def _wanted(job: JobRecord, steps: Sequence[JobStep], *, chats: bool) -> list[str]:
    """Steps that must have had an effect when the job is completed."""
    wanted = [chats or (step.tool is not None and step.tool.side_effect) for step in steps]
    return [f"{job.seq}:{index}" for index, is_wanted in enumerate(wanted) if is_wanted]


def _job_of(ref: str, jobs: dict[int, JobRecord]) -> JobRecord | None:
    seq = _seq(ref)
    return None if seq is None else jobs.get(seq)


def _stale(jobs: list[JobRecord], calls: dict[str, list[ToolRecord]]) -> list[_Wrong]:
    """Results of a call after which the step was called again: a former holder's."""
    found: list[_Wrong] = []
    for job in jobs:
        for step, winner in job.winners.items():
            ref = f"{job.seq}:{step}"
            last = max((call.call for call in calls.get(ref, ())), default=winner)
            if last > winner:
                note = f"its result is that of call {winner}, but call {last} came after it"
                found.append(_Wrong(note, ref, job.ended_ns or 0))
    return found


def _seq(ref: str) -> int | None:
    seq = ref.partition(":")[0]
    return int(seq) if seq.isdecimal() else None


def _run(*, repeated: int = 5, twice: int = 0) -> Run:
    scene = JobScene()
    for k in range(40):
        at_ms = 4_800 + 100 * k
        job = scene.job(at_ms, 2_000)
        if k < repeated:
            scene.call(job, at_ms + 10, 190, ending="cancelled", effect=True)
            scene.call(job, at_ms + 900, 50, effect=k < twice)
        else:
            scene.call(job, at_ms + 10, 150)
    return scene.run()
