"""Is the queue inside the gateway bounded, and does it stop growing?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self

import msgspec
from pydantic import Field

from agentload.checks import Check, PhaseName
from agentload.evidence.hidden_queue import Wait, depth_steps, waits
from agentload.evidence.history import REFUSALS, counted_phases
from agentload.evidence.intervals import Interval, Step, highest, means
from agentload.evidence.statistics import enough, percentiles, slope
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import conclude, finite, plural, seconds, undecided
from agentload.extensive import Growth, grown
from agentload.model import NS, Evidence, Outcome, Run, Status, Verdict
from agentload.promises import Truth
from agentload.scheduler.config import ClassConfig

POINTS_PER_PHASE = 60
UNDECLARED_AGE_S = 30.0
"""Longest wait where nobody has promised a shorter one."""
ANSWER_S = 0.5
"""What a promised longest wait is judged with on top: a refusal at its end must still reach its client."""


class BoundedQueue(Check):
    """Passes when the work hidden in the gateway is bounded in number and in age, and stops growing.

    The hidden queue is what clients have in flight (fast refusals left out) less what the provider has, from
    both logs: it finds a queue wherever a gateway keeps it. Depth may be `max_depth` and, as work on its way
    in and out looks the same, `slack` more; nothing may wait longer than `max_age_s`. A queue still growing
    at the end of a phase without having met a bound decides nothing. When the generator's own cap on requests
    in flight is reached because the gateway holds them all, that is a failure too.
    """

    better_with = frozenset({Truth.QUEUE_REQUESTS, Truth.QUEUE_AGE})
    needs_ledger = True
    needs_attribution = True
    stalls_only_worsen = True
    extensive = ("max_depth",)

    phases: tuple[PhaseName, ...] = ()
    """By default every recorded phase."""
    max_depth: int | None = Field(default=None, ge=0)
    """Requests. By default the sum of `max_queue` over the gateway's service classes. Where a target declares
    no bound, only whether the queue grows, and its age."""
    max_age_s: float | None = Field(default=None, gt=0)
    """By default the longest `max_wait_s` of the gateway's service classes, and half a second for the answer.
    Where a target declares none, 30 s: no chat client waits longer for a first sign."""
    slack: int = Field(default=16, ge=0)
    """Requests that may be on their way at one instant."""

    def better(self) -> frozenset[Truth]:
        """Bounds of its own need no promise."""
        told = {Truth.QUEUE_REQUESTS: self.max_depth, Truth.QUEUE_AGE: self.max_age_s}
        return frozenset(truth for truth, bound in told.items() if bound is None)

    def scaled(self, by: Growth) -> Self:
        """More may be on their way under more load; under less, those of one hiccup are as many as ever."""
        more = max(self.slack, grown(self.slack, by.load))
        return super().scaled(by).model_copy(update={"slack": more})

    def judge(self, run: Run) -> Verdict:
        """Depth, age and growth, phase by phase."""
        phases = {name: run.profile.phase_window_ns(name) for name in self.phases or counted_phases(run)}
        n = sum(record.phase in phases for record in run.records)
        if not enough(n, 50):
            return undecided(self, f"only {n:,} requests: at least 20 are needed", n=n)
        steps = depth_steps(run.records, run.ledger)
        results = [_measure(run, name, window, steps, self.slack) for name, window in phases.items()]
        waited = [w for w in waits(run.records, run.ledger) if _overlaps(w, phases.values())]
        oldest = max(waited, key=lambda wait: wait.length_ns, default=None)
        deepest = max(results, key=lambda result: result.depth)
        found = (
            self._too_deep(run, deepest)
            or self._too_old(run, oldest)
            or self._growing(run, results)
            or self._bounded(run, deepest, oldest)
        )
        details = self._details(run, results, waited)
        # A bound holds under any load: a generator that was late or had to stop does not excuse this failure.
        details["stands_under_any_load"] = found.status is Status.FAILED and found.unit == "requests"
        return conclude(
            self,
            found.status,
            found.because,
            measured=found.measured,
            bound=found.bound,
            unit=found.unit,
            n=n,
            evidence=_evidence(deepest, waited),
            details=details,
        )

    def _depth_bound(self, run: Run) -> int | None:
        """None: nobody has said one."""
        if self.max_depth is not None:
            return self.max_depth + self.slack
        if not run.knows(Truth.QUEUE_REQUESTS):
            return None
        return sum(one.max_queue for one in _classes(run)) + self.slack

    def _age_bound_s(self, run: Run) -> float:
        if self.max_age_s is not None:
            return self.max_age_s
        known = run.knows(Truth.QUEUE_AGE)
        return max(one.max_wait_s for one in _classes(run)) + ANSWER_S if known else UNDECLARED_AGE_S

    def _age_words(self, run: Run) -> str:
        """How the bound on age comes from what is promised; empty where nothing is added."""
        if self.max_age_s is not None or not run.knows(Truth.QUEUE_AGE):
            return ""
        promised_s = self._age_bound_s(run) - ANSWER_S
        return f"; its bound is {promised_s:g} s (and {ANSWER_S:g} s for the answer)"

    def _undeclared(self, run: Run) -> str:
        """What the verdict does not rest on, for want of a promise."""
        if self._depth_bound(run) is not None:
            return ""
        key = "" if run.denies(Truth.QUEUE_REQUESTS) else " (declares.queue.requests)"
        return f"; the target declares no bound{key}, so only growth and age are judged"

    def _too_deep(self, run: Run, deepest: _PhaseQueue) -> _Finding | None:
        bound, health = self._depth_bound(run), run.health
        capped = health.capped > 0 and 2 * deepest.depth > health.in_flight_cap
        if (bound is None or deepest.depth <= bound) and not capped:
            return None
        because = (
            f"the gateway held {deepest.depth:,} requests at {seconds(deepest.at_ns)} in '{deepest.phase}'"
        )
        if bound is not None:
            because += f"; its bound is {bound - self.slack:,} (and {self.slack} on their way)"
        if capped:
            because += f"; the generator stopped at its cap of {health.in_flight_cap:,} in flight"
        limit = health.in_flight_cap // 2 if bound is None else bound
        return _Finding(Status.FAILED, because, deepest.depth, limit, "requests")

    def _too_old(self, run: Run, oldest: Wait | None) -> _Finding | None:
        bound_s = self._age_bound_s(run)
        if oldest is None or oldest.length_ns <= bound_s * NS:
            return None
        because = (
            f"a request of {oldest.tenant} waited {seconds(oldest.length_ns)} in the gateway"
            f"{'' if oldest.served else ' and never reached the provider'}{self._age_words(run)}"
        )
        return _Finding(Status.FAILED, because, oldest.length_ns / NS, bound_s, "s")

    def _growing(self, run: Run, results: Sequence[_PhaseQueue]) -> _Finding | None:
        worst = max(results, key=lambda result: result.growth_per_s)
        if not worst.grows:
            return None
        bound = self._depth_bound(run)
        because = (
            f"the queue was still growing by {worst.growth_per_s:.1f} requests/s when '{worst.phase}' "
            f"ended, at {worst.depth:,}{'' if bound is None else f' of {bound:,}'} and after "
            f"{worst.refused:,} refusals: whether it has a bound would show in a longer phase, under more "
            "load, or against a lower max_depth"
        )
        if bound is None:
            because += " (or declares.queue.requests)"
        return _Finding(Status.INCONCLUSIVE, because, worst.depth, bound, "requests")

    def _bounded(self, run: Run, deepest: _PhaseQueue, oldest: Wait | None) -> _Finding:
        age = seconds(oldest.length_ns) if oldest else "0 s"
        held = f"{plural(deepest.depth, 'request')} {'was' if deepest.depth == 1 else 'were'}"
        because = f"at most {held} held in the gateway, the oldest for {age}{self._undeclared(run)}"
        if self._depth_bound(run) is None:
            because += self._age_words(run)
            return _Finding(
                Status.PASSED, because, oldest.length_ns / NS if oldest else 0.0, self._age_bound_s(run), "s"
            )
        return _Finding(Status.PASSED, because, deepest.depth, self._depth_bound(run), "requests")

    def _details(self, run: Run, results: Sequence[_PhaseQueue], waited: Sequence[Wait]) -> dict[str, Any]:
        ages = [wait.length_ns for wait in waited]
        p50, p95, most = percentiles(ages, (50, 95, 100)) if ages else (0.0, 0.0, 0.0)
        return {
            "depth_bound": self._depth_bound(run),
            "age_bound_s": self._age_bound_s(run),
            "age_s": {"p50": finite(p50 / NS), "p95": finite(p95 / NS), "max": finite(most / NS)},
            "phases": {
                r.phase: {
                    "max_depth": r.depth,
                    "growth_per_s": finite(r.growth_per_s),
                    "growing": r.grows,
                    "refused": r.refused,
                }
                for r in results
            },
            "depth_over_time": [point for result in results for point in result.points],
        }

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """Forty a second come, twenty go, nothing is refused: after five seconds a hundred wait."""
        return cls(max_depth=50), _run(accept=10_000)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Ten requests."""
        return cls(max_depth=50), _run(accept=10_000, requests=10)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """The same load; the gateway refuses what would be more than 40 waiting."""
        return cls(max_depth=50), _run(accept=40)


class _Finding(msgspec.Struct, frozen=True):
    status: Status
    because: str
    measured: float
    bound: float | None
    unit: str


class _PhaseQueue(msgspec.Struct, frozen=True):
    phase: str
    depth: int
    at_ns: int
    growth_per_s: float
    """Trend over the second half of the phase: the first may fill a bounded queue."""
    grows: bool
    refused: int
    points: list[list[float | None]]


def _measure(run: Run, phase: str, window: Interval, steps: Sequence[Step], slack: int) -> _PhaseQueue:
    depth, at_ns = highest(steps, window)
    points = means(steps, window, POINTS_PER_PHASE)
    late = points[POINTS_PER_PHASE // 2 :]
    growth_per_s = slope([at / NS for at, _ in late], [value for _, value in late])
    gained = growth_per_s * (late[-1][0] - late[0][0]) / NS
    usual = sum(value for _, value in late) / len(late)
    return _PhaseQueue(
        phase=phase,
        depth=depth,
        at_ns=at_ns,
        growth_per_s=growth_per_s,
        grows=gained > max(slack, usual / 4),
        refused=sum(r.phase == phase and r.outcome in REFUSALS for r in run.records),
        points=[[finite(at / NS), finite(value, 1)] for at, value in points],
    )


def _classes(run: Run) -> list[ClassConfig]:
    return [one for pool in run.profile.gateway.pools.values() for one in pool.classes.values()]


def _overlaps(wait: Wait, windows: Collection[Interval]) -> bool:
    return any(wait.start_ns < end and start < wait.end_ns for start, end in windows)


def _evidence(deepest: _PhaseQueue, waited: Sequence[Wait]) -> list[Evidence]:
    oldest = sorted(waited, key=lambda wait: -wait.length_ns)[:4]
    return [Evidence(note=f"{deepest.depth:,} requests in the gateway", at_ns=deepest.at_ns)] + [
        Evidence(note=f"{w.tenant}: waited {seconds(w.length_ns)}", seq=w.seq, at_ns=w.end_ns) for w in oldest
    ]


def _run(*, accept: int, requests: int = 240) -> Run:
    """One every 25 ms; the provider takes one every 50 ms; at most `accept` wait."""
    build = RunBuilder(profile(phases={"load": 6.0}))
    waiting: list[float] = []
    next_free_ms = 0.0
    for k in range(requests):
        at_ms = 25.0 * k
        waiting = [dispatch_ms for dispatch_ms in waiting if dispatch_ms > at_ms]
        if len(waiting) >= accept:
            build.refused("a", at_ms)
            continue
        dispatch_ms = max(at_ms, next_free_ms)
        next_free_ms = dispatch_ms + 50
        waiting.append(dispatch_ms)
        if dispatch_ms < 6_000:
            build.answered("a", at_ms, wait_ms=dispatch_ms - at_ms)
        else:
            build.ended("a", at_ms, Outcome.UNFINISHED, after_ms=6_000 - at_ms)
    return build.run()
