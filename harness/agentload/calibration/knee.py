"""What a target carries, from a ramp of open-loop steps, each at twice the rate of the last. Pure.

A step is carried when what was sent in it comes back as fast as it went out, about as quickly as before. A
quick refusal comes back, too: a gateway that keeps its own limits is not slow, and where it begins to refuse
is told apart from where it can do no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

KEPT = 0.9
"""Of what was sent in a carried step so much comes back in time; two requests more or less are chance."""
CHANCE = 2.0
SLOWER, SLOWER_MS = 2.5, 100.0
"""A median so many times that of the quickest step, and so much longer, shows that requests queue."""
MOST_FAILED = 0.05
REFUSING = 0.02
"""Where a larger share is refused, a limit of the target's own has been reached."""
LATE_MS = 50.0
"""A generator whose 95th percentile is later than this measures itself."""


class EndedBy(StrEnum):
    """What the ramp met."""

    TOP = "top"
    """Nothing: every step was carried."""
    TARGET = "target"
    """What comes back no longer grows, or takes longer and longer."""
    ERRORS = "errors"
    GENERATOR = "generator"
    """This machine can send no more in time."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the ramp, as it was sent and as it came back."""

    rate: float
    """Requests per second, as planned."""
    seconds: float
    sent: int
    answered: float = 0.0
    """Answers per second that came back while the step's requests did: in its stretch of time, shifted by a
    usual latency."""
    refused: float = 0.0
    """429 and 503 per second, in its own stretch of time: they come at once."""
    failed: int = 0
    """Of those sent: any other ending."""
    p50_ms: float | None = None
    """Of the answers to what was sent; None where there were none."""
    late_ms: float = 0.0
    """95th percentile of how late they were sent."""

    @property
    def handled(self) -> float:
        """Came back per second, as an answer or a refusal."""
        return self.answered + self.refused


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What the target was found to carry."""

    per_s: float
    """Requests per second, answered or refused."""
    ended_by: EndedBy
    limit_per_s: float | None = None
    """Answers per second from which on the target refuses: a limit of its own. None: it refused nothing."""
    waited: float = 0.0
    """Share of the time in which the load generator waited for a processor: how busy this machine was."""
    steps: tuple[Step, ...] = ()


def carried(steps: Sequence[Step]) -> Carried:
    """The verdict on a ramp. One bad step before a good one is chance (a stall of the machine).

    Raises ValueError without any step.
    """
    if not steps:
        raise ValueError("a ramp has at least one step")
    good = [_trouble(step, steps[:place]) is None for place, step in enumerate(steps)]
    bad = next((place for place in range(len(steps)) if not any(good[place:])), None)
    limit = _limit(steps)
    if bad is None:
        return Carried(per_s=steps[-1].rate, ended_by=EndedBy.TOP, limit_per_s=limit, steps=tuple(steps))
    ended_by = _trouble(steps[bad], steps[:bad]) or EndedBy.TARGET
    before = steps[bad - 1].rate if bad else 0.0
    there = max(min(steps[bad].handled, steps[bad].rate), _mean_handled(steps[bad:]))
    trusted = ended_by is EndedBy.TARGET or not bad
    per_s = max(before, there) if trusted else before
    return Carried(per_s=per_s, ended_by=ended_by, limit_per_s=limit, steps=tuple(steps))


def _mean_handled(steps: Sequence[Step]) -> float:
    """Per second, over all of them: beyond the knee as much comes back as can."""
    return sum(min(one.handled, one.rate) * one.seconds for one in steps) / sum(one.seconds for one in steps)


def _trouble(step: Step, before: Sequence[Step]) -> EndedBy | None:
    """What is wrong with a step; None for one that was carried. A late generator may be why of all else."""
    if step.late_ms > LATE_MS:
        return EndedBy.GENERATOR
    if step.failed > MOST_FAILED * step.sent + 1:
        return EndedBy.ERRORS
    usual = min((one.p50_ms for one in before if one.p50_ms is not None), default=step.p50_ms)
    slow = step.p50_ms is not None and usual is not None and step.p50_ms > SLOWER * usual + SLOWER_MS
    behind = step.handled * step.seconds < KEPT * step.sent - CHANCE
    return EndedBy.TARGET if slow or behind else None


def _limit(steps: Sequence[Step]) -> float | None:
    """Answers per second once the target refuses. In its first such step a limit's burst is used up."""
    first = next((place for place, one in enumerate(steps) if one.refused > REFUSING * one.handled), None)
    if first is None:
        return None
    seen = [one for one in steps[first:] if one.refused > REFUSING * one.handled]
    seen = seen[1:] or seen
    return sum(one.answered * one.seconds for one in seen) / sum(one.seconds for one in seen)
