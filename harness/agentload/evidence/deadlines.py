"""Requests with a deadline: when each ended, when its call began, and how much time was left then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agentload.evidence.hidden_queue import calls_by_attempt
from agentload.evidence.history import counted_records
from agentload.evidence.statistics import enough, percentile
from agentload.model import CallEnding, LedgerEntry, Outcome, RequestRecord, Run

QUICKEST = 5
"""Percentile of a tenant's service times below which hardly a call of it ends."""


class Bounded(msgspec.Struct, frozen=True, gc=False):
    """One attempt at a request with a deadline."""

    record: RequestRecord
    deadline_ns: int
    """On the run's clock: from when the request was due."""
    call: LedgerEntry | None
    """Its last call at the provider."""
    least_ns: float
    """What a call of its tenant takes at least; 0 when too few were completed to tell."""

    @property
    def begun_late_ns(self) -> int:
        """How long after the deadline its last call arrived; negative when before."""
        return -1 if self.call is None else self.call.arrived_ns - self.deadline_ns

    @property
    def ended_late_ns(self) -> int:
        """How long after the deadline the client was told, or left; negative when before."""
        return self.record.ended_ns - self.deadline_ns

    @property
    def is_hopeless(self) -> bool:
        """It entered service with less time left than a call takes."""
        if self.call is None or self.call.started_ns is None:
            return False
        return self.deadline_ns - self.call.started_ns < self.least_ns


def bounded_attempts(run: Run) -> list[Bounded]:
    """All counted attempts of open loops that have a deadline; unsent load left out.

    (The plan does not list what closed loops send, and with it their deadlines.)
    """
    lengths = {
        arrival.seq: arrival.job.deadline_ns
        for arrival in run.plan.arrivals
        if arrival.job.deadline_ns is not None
    }
    calls, least = calls_by_attempt(run.ledger), _least(run.ledger)
    return [
        Bounded(
            record,
            record.first_due_ns + length_ns,
            _last(calls, record),
            least.get(record.tenant, 0.0),
        )
        for record in counted_records(run)
        if record.outcome is not Outcome.UNSENT and (length_ns := lengths.get(record.seq)) is not None
    ]


def _last(
    calls: Mapping[tuple[int, int], Sequence[LedgerEntry]], record: RequestRecord
) -> LedgerEntry | None:
    mine = calls.get((record.seq, record.attempt))
    return mine[-1] if mine else None


def _least(ledger: Sequence[LedgerEntry]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for call in ledger:
        if call.ending is CallEnding.COMPLETED and call.tenant and call.started_ns and call.ended_ns:
            times.setdefault(call.tenant, []).append(float(call.ended_ns - call.started_ns))
    return {tenant: percentile(t, QUICKEST) for tenant, t in times.items() if enough(len(t), 50)}
