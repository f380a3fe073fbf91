"""Is work begun that cannot be done by its deadline, or anybody kept waiting beyond theirs?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pydantic import Field

from agentload.checks import Check, WithoutLedger
from agentload.evidence.deadlines import Bounded, bounded_attempts
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import MS, RunBuilder, profile, with_deadlines
from agentload.evidence.verdicts import (
    conclude,
    evidence_of,
    milliseconds,
    percent_of,
    status_of_share,
    undecided,
)
from agentload.model import Evidence, Outcome, Run, Status, Verdict, worst
from agentload.promises import Truth


class Deadline(Check):
    """Passes when nothing begins that its deadline leaves no time for, and everybody is answered by theirs.

    A deadline is absolute: it counts from when the request was due, the wait in the queue included. A call
    that begins later is wasted for certain, and a gateway whose timeouts start at dispatch begins many of
    them under load. So none may arrive at the provider more than `grace_ms` after its deadline, and at most
    `max_overdue` of the requests may end later than that, whatever their ending. A call that begins with less
    time left than 95 % of its tenant's completed calls took is wasted, too: a gateway that drops only what
    has expired already is busy with what will expire in service. At most `max_hopeless` of the calls may
    begin so. Deadlines of closed loops are not looked at: the plan does not list them.
    """

    rests_on = frozenset({Truth.DEADLINES})
    needs_ledger = True
    needs_attribution = True
    without_ledger = WithoutLedger.FAILURES

    grace_ms: float = Field(default=100.0, ge=0)
    """For the way, and for timers."""
    max_overdue: float = Field(default=0.01, ge=0, lt=1)
    """Share of the requests with a deadline that may end later, 0..1."""
    max_hopeless: float = Field(default=0.02, ge=0, lt=1)
    """Share of their calls that may begin with too little time left, 0..1."""

    def judge(self, run: Run) -> Verdict:
        """Count late and hopeless beginnings, and late endings."""
        found = self._found(run)
        doubt = None if found.status is Status.FAILED else _doubt(found.bounded)
        if doubt:
            return undecided(self, doubt, n=len(found.bounded))
        hopeless_decides = found.hopeless_status is found.status and not found.late and found.hopeless
        share = len(found.hopeless) / max(1, len(found.called))
        return conclude(
            self,
            found.status,
            self._words(found),
            measured=100 * share if hopeless_decides else self._lateness_ms(found),
            bound=100 * self.max_hopeless if hopeless_decides else self.grace_ms,
            unit="% begun too late" if hopeless_decides else "ms late",
            n=len(found.bounded),
            evidence=[
                *map(_begun, _latest(found.late)),
                *map(_ended, _latest(found.overdue)),
                *map(_hopeless, found.hopeless[:3]),
            ],
            details=found.details(),
        )

    def _found(self, run: Run) -> _Found:
        grace_ns = round(self.grace_ms * MS)
        bounded = bounded_attempts(run)
        called = [one for one in bounded if one.call is not None]
        late = [one for one in called if one.begun_late_ns > grace_ns]
        overdue = [one for one in bounded if one.ended_late_ns > grace_ns]
        hopeless = [one for one in called if one.is_hopeless]
        return _Found(
            bounded=bounded,
            called=called,
            late=late,
            overdue=overdue,
            hopeless=hopeless,
            overdue_status=status_of_share(len(overdue), len(bounded), self.max_overdue),
            hopeless_status=status_of_share(len(hopeless), len(called), self.max_hopeless),
        )

    def _words(self, found: _Found) -> str:
        late = found.late
        because = (
            f"{len(late):,} calls reached the provider more than {self.grace_ms:g} ms after their deadline"
            + (f", up to {milliseconds(max(one.begun_late_ns for one in late))} late" if late else "")
            + f", and {percent_of(len(found.hopeless), len(found.called))} began with too little time left; "
            f"{percent_of(len(found.overdue), len(found.bounded))} of the requests ended late"
        )
        if found.status is Status.INCONCLUSIVE:
            because += ": too few to tell whether that is more than chance, so a longer run would help"
        return because

    def _lateness_ms(self, found: _Found) -> float:
        """Of the latest beginning; where none was late, of the endings, without the share that may be."""
        if found.late:
            return max(one.begun_late_ns for one in found.late) / MS
        ordered = sorted(one.ended_late_ns for one in found.bounded)
        usual = ordered[: max(1, len(ordered) - round(self.max_overdue * len(ordered)))] or [0]
        return max(0, *usual, 0) / MS

    @classmethod
    def counterexample(cls) -> tuple[Check, Run]:
        """A deadline of half a second; one request waits for two and is then sent on."""
        return cls(), _run(late=1)

    @classmethod
    def too_few(cls) -> tuple[Check, Run]:
        """Four requests."""
        return cls(), _run(late=0, requests=4)

    @classmethod
    def example(cls) -> tuple[Check, Run]:
        """What cannot be served in time is refused in time."""
        return cls(), _run(late=0)


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    bounded: list[Bounded]
    called: list[Bounded]
    """Those that reached the provider."""
    late: list[Bounded]
    overdue: list[Bounded]
    hopeless: list[Bounded]
    overdue_status: Status
    hopeless_status: Status

    @property
    def status(self) -> Status:
        return Status.FAILED if self.late else worst([self.overdue_status, self.hopeless_status])

    def details(self) -> dict[str, int]:
        return {
            "requests_with_a_deadline": len(self.bounded),
            "begun": len(self.called),
            "begun_late": len(self.late),
            "begun_hopeless": len(self.hopeless),
            "ended_late": len(self.overdue),
            "answered": sum(one.record.outcome is Outcome.ANSWERED for one in self.bounded),
            "expired": sum(one.record.outcome is Outcome.EXPIRED for one in self.bounded),
        }


def _doubt(bounded: Sequence[Bounded]) -> str | None:
    if not enough(len(bounded), 50):
        return f"only {len(bounded):,} requests of open loops had a deadline: at least 20 are needed"
    if all(one.record.outcome is Outcome.ANSWERED for one in bounded):
        return "every request was answered, so no deadline was put to the test: more load, or shorter ones"
    return None


def _latest(found: Sequence[Bounded]) -> list[Bounded]:
    return sorted(found, key=lambda one: -max(one.begun_late_ns, one.ended_late_ns))[:3]


def _begun(one: Bounded) -> Evidence:
    late = milliseconds(one.begun_late_ns)
    return evidence_of(one.record, f"{one.record.tenant}: begun {late} after its deadline")


def _ended(one: Bounded) -> Evidence:
    late = milliseconds(one.ended_late_ns)
    return evidence_of(one.record, f"{one.record.tenant}: {one.record.outcome} {late} after its deadline")


def _hopeless(one: Bounded) -> Evidence:
    started_ns = one.call.started_ns if one.call else None
    left = milliseconds(one.deadline_ns - (started_ns or 0))
    return evidence_of(
        one.record,
        f"{one.record.tenant}: begun with {left} left; hardly a call takes less than "
        f"{milliseconds(one.least_ns)}",
    )


def _run(*, late: int, requests: int = 40) -> Run:
    """Deadlines of 500 ms; every fourth request is refused, and `late` ones wait two seconds instead."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(requests):
        if k < late:
            build.answered("a", 200 * k, wait_ms=2_000)
        elif k % 4 == 3:
            build.refused("a", 200 * k, status=504, retry_after=None)
        else:
            build.answered("a", 200 * k, wait_ms=100)
    return with_deadlines(build.run(), 500 * MS)
