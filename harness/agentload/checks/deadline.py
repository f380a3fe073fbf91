"""Is work begun, or kept waiting for, after its deadline?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pydantic import Field

from agentload.checks import Check
from agentload.evidence.hidden_queue import calls_by_attempt
from agentload.evidence.history import counted_records
from agentload.evidence.statistics import enough
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import (
    conclude,
    evidence_of,
    milliseconds,
    percent_of,
    status_of_share,
    undecided,
)
from agentload.model import Arrival, Evidence, Job, LedgerEntry, Outcome, RequestRecord, Run, Status, Verdict


class Deadline(Check):
    """Passes when nothing reaches the provider after its deadline, and everybody is answered by theirs.

    A deadline is absolute: it counts from when the request was due, the wait in the queue included. A call
    that begins later is wasted for certain, and a gateway whose timeouts start at dispatch begins many of
    them under load. So none may arrive at the provider more than `grace_ms` after its deadline, and at most
    `max_overdue` of the requests may end later than that, whatever their ending. Deadlines of closed loops
    are not looked at: the plan does not list them.
    """

    needs_ledger = True
    needs_attribution = True

    grace_ms: float = Field(default=100.0, ge=0)
    """For the way, and for timers."""
    max_overdue: float = Field(default=0.01, ge=0, lt=1)
    """Share of the requests with a deadline that may end later, 0..1."""

    def judge(self, run: Run) -> Verdict:
        """Count late beginnings and late endings."""
        bounded = _bounded(run)
        grace_ns = round(self.grace_ms * MS)
        begun = [one for one in bounded if one.begun_late_ns > grace_ns]
        overdue = [one for one in bounded if one.ended_late_ns > grace_ns]
        in_time = status_of_share(len(overdue), len(bounded), self.max_overdue)
        failed = bool(begun) or in_time is Status.FAILED
        latest_ns = max([one.begun_late_ns for one in begun] or self._usual_lateness(bounded))
        doubt = None if failed else _doubt(bounded)
        if doubt:
            return undecided(self, doubt, n=len(bounded))
        because = (
            f"{len(begun)} calls reached the provider more than {self.grace_ms:g} ms after their deadline"
            + (f", up to {milliseconds(max(one.begun_late_ns for one in begun))} late" if begun else "")
            + f"; {percent_of(len(overdue), len(bounded))} of the requests ended later than that"
        )
        if in_time is Status.INCONCLUSIVE and not failed:
            because += ": too few to tell whether that is more than chance, so a longer run would help"
        return conclude(
            self,
            Status.FAILED if failed else in_time,
            because,
            measured=max(0, latest_ns) / MS,
            bound=self.grace_ms,
            unit="ms late",
            n=len(bounded),
            evidence=[*map(_begun, _worst(begun)), *map(_ended, _worst(overdue))],
            details={
                "requests_with_a_deadline": len(bounded),
                "begun_late": len(begun),
                "ended_late": len(overdue),
                "answered": sum(one.record.outcome is Outcome.ANSWERED for one in bounded),
                "expired": sum(one.record.outcome is Outcome.EXPIRED for one in bounded),
            },
        )

    def _usual_lateness(self, bounded: Sequence[_Bounded]) -> list[int]:
        """How late requests ended, without the share that may be late."""
        ordered = sorted(one.ended_late_ns for one in bounded)
        return ordered[: max(1, len(ordered) - round(self.max_overdue * len(ordered)))] or [0]

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


class _Bounded(msgspec.Struct, frozen=True, gc=False):
    """One attempt at a request with a deadline."""

    record: RequestRecord
    deadline_ns: int
    last_call_ns: int | None
    """When its last call reached the provider."""

    @property
    def begun_late_ns(self) -> int:
        """How long after the deadline its last call began; negative when before."""
        return -1 if self.last_call_ns is None else self.last_call_ns - self.deadline_ns

    @property
    def ended_late_ns(self) -> int:
        return self.record.ended_ns - self.deadline_ns


def _bounded(run: Run) -> list[_Bounded]:
    lengths = {
        arrival.seq: arrival.job.deadline_ns
        for arrival in run.plan.arrivals
        if arrival.job.deadline_ns is not None
    }
    calls = calls_by_attempt(run.ledger)
    return [
        _Bounded(
            record,
            record.first_due_ns + length_ns,
            _last(calls.get((record.seq, record.attempt), [])),
        )
        for record in counted_records(run)
        if record.outcome is not Outcome.UNSENT and (length_ns := lengths.get(record.seq)) is not None
    ]


def _last(calls: Sequence[LedgerEntry]) -> int | None:
    return calls[-1].arrived_ns if calls else None


def _doubt(bounded: Sequence[_Bounded]) -> str | None:
    if not enough(len(bounded), 50):
        return f"only {len(bounded)} requests of open loops had a deadline: at least 20 are needed"
    if all(one.record.outcome is Outcome.ANSWERED for one in bounded):
        return "every request was answered, so no deadline was put to the test: more load, or shorter ones"
    return None


def _worst(found: Sequence[_Bounded]) -> list[_Bounded]:
    return sorted(found, key=lambda one: -max(one.begun_late_ns, one.ended_late_ns))[:3]


def _begun(one: _Bounded) -> Evidence:
    late = milliseconds(one.begun_late_ns)
    return evidence_of(one.record, f"{one.record.tenant}: begun {late} after its deadline")


def _ended(one: _Bounded) -> Evidence:
    late = milliseconds(one.ended_late_ns)
    return evidence_of(one.record, f"{one.record.tenant}: {one.record.outcome} {late} after its deadline")


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
    job = Job(input_tokens=20, output_tokens=20, declared_output_tokens=20, deadline_ns=500 * MS)
    arrivals = tuple(
        Arrival(seq=r.seq, tenant="a", service_class="standard", phase=r.phase, due_ns=r.due_ns, job=job)
        for r in build.records
    )
    run = build.run()
    run.plan = msgspec.structs.replace(run.plan, arrivals=arrivals)
    return run
