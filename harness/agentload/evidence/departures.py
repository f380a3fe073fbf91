"""Clients that left before their answer, and what the gateway made of it at the provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from agentload.evidence.hidden_queue import calls_by_attempt
from agentload.model import LedgerEntry, Outcome, RequestRecord

MS = 1_000_000


class Departure(msgspec.Struct, frozen=True, gc=False):
    """One attempt whose client closed its connection."""

    record: RequestRecord
    calls: list[LedgerEntry]
    """All calls at the provider for this attempt, in order of arrival."""

    @property
    def at_ns(self) -> int:
        """When the client left."""
        return self.record.ended_ns

    @property
    def in_flight(self) -> list[LedgerEntry]:
        """The calls that were at the provider (in service or queued there) when the client left."""
        return [
            call
            for call in self.calls
            if call.arrived_ns <= self.at_ns and (call.ended_ns is None or call.ended_ns > self.at_ns)
        ]

    @property
    def queued(self) -> bool:
        """True when the provider had not seen the work yet: it waited in the gateway."""
        return not self.calls or self.calls[0].arrived_ns > self.at_ns


def departures(records: Iterable[RequestRecord], ledger: Iterable[LedgerEntry]) -> list[Departure]:
    """Every attempt that its client abandoned, in the order of the records.

    Left out is whoever could not say so: work that is asked after goes on until it is called off.
    """
    calls = calls_by_attempt(ledger)
    return [
        Departure(record, calls.get((record.seq, record.attempt), []))
        for record in records
        if record.outcome is Outcome.ABANDONED and not record.silent
    ]


def remarks(records: Iterable[RequestRecord]) -> str:
    """What to say of work that is asked after: who is left out for silence, and whose request to call it
    off was not taken. Empty where there is nothing."""
    left = [record for record in records if record.outcome is Outcome.ABANDONED]
    silent = sum(record.silent for record in left)
    said = ""
    if silent:
        said = (
            f"; left out: {silent:,} who left work that is asked after, without a request to call it off "
            "(jobs.cancel of the target file, or before they were told its id)"
        )
    told = [record.called_off for record in left if record.called_off is not None]
    deaf = Counter(status for status in told if not 200 <= status < 300)
    if deaf:
        [(status, _)] = deaf.most_common(1)
        most = str(status) if status else "no answer"
        said += (
            f"; {deaf.total():,} of {len(told):,} requests to call work off were not taken (mostly {most})"
        )
    return said


def grace_ns(rtt_ms: float, grace_ms: float) -> int:
    """Two round trips and a grace: until then the gateway need not have noticed that a client left."""
    return round((2 * rtt_ms + grace_ms) * MS)
