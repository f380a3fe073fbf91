"""Does every side effect of a job come once, and is the result that of the latest delivery?"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from agentload.checks import Check, Need
from agentload.evidence.durable import by_ref, orders, step_of
from agentload.evidence.durable_scene import JobScene
from agentload.evidence.verdicts import conclude, plural, undecided
from agentload.model import Evidence, JobRecord, Run, Status, ToolRecord, Verdict


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
    """

    needs = frozenset({Need.JOBS})
    zero_tolerance = True

    min_repeats: int = Field(default=3, ge=1)

    def judge(self, run: Run) -> Verdict:
        """Count effects and winners by step."""
        if not run.tools:
            return undecided(self, "our provider saw no call of a tool: is `tool_url` set to it?")
        jobs = {job.seq: job for job in run.jobs}
        calls, ordered = by_ref(run.tools), orders(run.profile)
        effects = {ref: sum(one.effect_ns is not None for one in same) for ref, same in calls.items()}
        twice = [
            _Wrong(f"{effects[ref]} effects of one step, in {len(same)} calls", ref, same[-1].arrived_ns)
            for ref, same in calls.items()
            if effects[ref] > 1
        ]
        missing = [
            _Wrong("completed without its effect", ref, job.ended_ns or 0)
            for job in run.jobs
            if job.state == "completed"
            for ref in _wanted(job, ordered[job.tenant].steps)
            if not effects.get(ref)
        ]
        stale = _stale(run.jobs, calls)
        repeats = sum(
            len(same) > 1 for ref, same in calls.items() if _has_effect(step_of(ordered, jobs, ref))
        )
        wrong = [*twice, *missing, *stale]
        if not wrong and repeats < self.min_repeats:
            return undecided(
                self,
                f"only {plural(repeats, 'step')} with a side effect called more than once: at least "
                f"{self.min_repeats} are needed (kill the gateway under more load)",
                n=repeats,
            )
        total = sum(effects.values())
        because = (
            f"{plural(total, 'side effect')} of {plural(len(calls), 'step')}, "
            f"{repeats:,} of them called again; {len(twice):,} came more than once, "
            f"{len(missing):,} not at all, {plural(len(stale), 'stale winner')}"
        )
        return conclude(
            self,
            Status.FAILED if wrong else Status.PASSED,
            because,
            measured=len(wrong),
            bound=0,
            unit="steps",
            n=len(calls),
            evidence=[Evidence(note=one.note, seq=_seq(one.ref), at_ns=one.at_ns) for one in wrong],
            details={
                "calls": len(run.tools),
                "effects": total,
                "steps_called_again": repeats,
                "effects_more_than_once": len(twice),
                "effects_missing": len(missing),
                "stale_winners": len(stale),
            },
        )

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


def _wanted(job: JobRecord, steps: object) -> list[str]:
    assert isinstance(steps, tuple)
    return [f"{job.seq}:{index}" for index, step in enumerate(steps) if _has_effect(step)]


def _has_effect(step: object) -> bool:
    tool = getattr(step, "tool", None)
    return tool is not None and bool(tool.side_effect)


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
