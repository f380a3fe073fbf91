"""Logical requests out of attempts: what a user wanted, and when it was answered, if ever.

Latency counts from the intended start of the first attempt (no coordinated omission) to the end of the last,
and is +infinity for a request that was never answered: a refusal is not a fast answer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import msgspec

from agentload.model import NS, Outcome, RequestRecord, Run

REFUSALS = frozenset({Outcome.REJECTED, Outcome.EXPIRED})
"""Endings in which the gateway said no: at once (429, 503), or after a wait (504)."""

STOPPED = "stopped-early"
"""Reason of an attempt that was never sent because the run was ended before it was due."""

GENERATOR_ERROR = "load-generator-error"
"""Reason of an attempt that the load generator has spoilt: an error of ours, which its log tells."""


class LogicalRequest(msgspec.Struct, frozen=True):
    """One thing a user wanted, with all attempts at it."""

    first: RequestRecord
    """The first attempt that was recorded."""
    last: RequestRecord
    """The attempt that decided how it ended; often the first one."""
    attempts: Sequence[RequestRecord]
    """All of them, at least one, in order of their numbers."""

    @property
    def seq(self) -> int:
        """The number of the logical request."""
        return self.first.seq

    @property
    def tenant(self) -> str:
        """Who wanted it."""
        return self.first.tenant

    @property
    def phase(self) -> str:
        """The phase in which it was first wanted; retries may fall into a later one."""
        return self.first.phase

    @property
    def answered(self) -> bool:
        """True when the last attempt brought the answer."""
        return self.last.outcome is Outcome.ANSWERED

    @property
    def unsent(self) -> bool:
        """True when the generator failed to send it: says nothing about the gateway."""
        return self.last.outcome is Outcome.UNSENT

    @property
    def refused(self) -> bool:
        """True when any attempt was refused, whatever came of the retries."""
        return any(attempt.outcome in REFUSALS for attempt in self.attempts)

    @property
    def latency_ns(self) -> float:
        """Error-adjusted: from the first intended start to the answer, +infinity if there was none."""
        return self.last.ended_ns - self.first.first_due_ns if self.answered else math.inf


def counted_phases(run: Run) -> list[str]:
    """Names of the phases that checks count (all but warm-ups), in order."""
    return [phase.name for phase in run.profile.phases if phase.record]


def counted_records(run: Run) -> list[RequestRecord]:
    """The attempts of the phases that checks count."""
    phases = set(counted_phases(run))
    return [record for record in run.records if record.phase in phases]


def logical_requests(records: Iterable[RequestRecord]) -> list[LogicalRequest]:
    """Attempts grouped by `seq`, in the order in which the first of each is met."""
    grouped: dict[int, list[RequestRecord]] = {}
    for record in records:
        grouped.setdefault(record.seq, []).append(record)
    requests: list[LogicalRequest] = []
    for attempts in grouped.values():
        if len(attempts) > 1:
            attempts.sort(key=lambda record: record.attempt)
        requests.append(LogicalRequest(attempts[0], attempts[-1], attempts))
    return requests


def requests_of(run: Run, tenants: Collection[str]) -> list[LogicalRequest]:
    """The logical requests of some tenants, in any phase; unsent load left out."""
    wanted = set(tenants)
    records = [record for record in run.records if record.tenant in wanted]
    return [request for request in logical_requests(records) if not request.unsent]


def latencies_ns(requests: Iterable[LogicalRequest]) -> list[float]:
    """Error-adjusted latencies, +infinity for requests never answered."""
    return [request.latency_ns for request in requests]


def answered_share(requests: Collection[LogicalRequest]) -> float:
    """Share of the requests that were answered in the end, 0..1; 1 for none at all."""
    return sum(request.answered for request in requests) / len(requests) if requests else 1.0


def tenant_names(run: Run, references: Iterable[str], phase: str | None = None) -> list[str]:
    """The tenants that references (names or groups) mean, in the profile's order, each once.

    Without references: all. With `phase`: only those active in it.
    """
    wanted = list(references)
    named = {t.name for reference in wanted for t in run.profile.tenants_named(reference)}
    return [
        tenant.name
        for tenant in run.profile.tenants
        if (not wanted or tenant.name in named)
        and (phase is None or not tenant.during or phase in tenant.during)
    ]


# ------------------------------------------------------------- the same run, looked at in another way


def from_sent(run: Run) -> Run:
    """The run as if every attempt had been due when it was really sent: without the generator's lateness."""
    first_sent = {record.seq: record.sent_ns for record in run.records if record.attempt == 0}
    return msgspec.structs.replace(run, records=[_from_sent(record, first_sent) for record in run.records])


def _from_sent(record: RequestRecord, first_sent: dict[int, int]) -> RequestRecord:
    first_due = first_sent.get(record.seq, record.first_due_ns)
    if record.due_ns == record.sent_ns and record.first_due_ns == first_due:
        return record
    return msgspec.structs.replace(record, due_ns=record.sent_ns, first_due_ns=first_due)


def without_windows(run: Run, windows: Iterable[tuple[int, int]]) -> Run:
    """The run without the requests that overlap a window, and without the calls that arrived in one.

    A request goes with all its attempts: half of its history would be another request's.
    """
    hidden = sorted(windows)

    def touches(start_ns: int, end_ns: int) -> bool:
        return any(start_ns <= end and start <= end_ns for start, end in hidden)

    gone = {record.seq for record in run.records if touches(record.due_ns, record.ended_ns)}
    return msgspec.structs.replace(
        run,
        records=[record for record in run.records if record.seq not in gone],
        ledger=[call for call in run.ledger if not touches(call.arrived_ns, call.arrived_ns)],
    )


def end_ns(run: Run) -> int:
    """The last instant from which the run holds anything: how far it came.

    Requests that were never sent are left out: after an interruption they lie in the time that never was.
    """
    return max(
        max((r.ended_ns for r in run.records if r.outcome is not Outcome.UNSENT), default=0),
        max((call.arrived_ns for call in run.ledger), default=0),
        max((sample.at_ns for sample in run.samples), default=0),
    )


def without_undecided(run: Run) -> Run:
    """An interrupted run without the requests that the interruption left undecided.

    Undecided: still open (or waiting for a retry) and younger than the `drain_s` they would have been given.
    Older ones had their chance and stay, as never answered. What would have been sent later is undecided as
    well.
    """
    now_ns, patience_ns = end_ns(run), round(run.profile.drain_s * NS)
    requests = logical_requests(run.records)
    undecided = {request.seq for request in requests if request.unsent and request.last.reason == STOPPED}
    undecided |= {
        request.seq
        for request in requests
        if (request.last.outcome is Outcome.UNFINISHED or not request.last.final)
        and not request.answered
        and now_ns - request.first.first_due_ns < patience_ns
    }
    return msgspec.structs.replace(run, records=[r for r in run.records if r.seq not in undecided])
