"""The queue inside a gateway, seen from outside: what clients have in flight and the provider has not.

Depth(t) = client attempts in flight at t (fast refusals left out) − their calls in service or queued at the
provider. It needs nothing of the gateway: only the client's records, the provider's ledger and one clock.
Little's picture: a gateway may call its waiting list what it likes, or hide it in a connection pool; work
that has gone in on one side and not come out on the other is waiting in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from agentload.evidence.intervals import Interval, Step, overlap_count, value_at
from agentload.evidence.statistics import percentile
from agentload.model import NS, LedgerEntry, Outcome, RequestRecord, Sample

FAST_REFUSAL_NS = NS // 4
"""A refusal this quick was never in a queue: the gateway was busy saying no, not holding work."""

Key = tuple[int, int]


class Wait(msgspec.Struct, frozen=True, gc=False):
    """One attempt's time in the gateway before the provider first saw it."""

    seq: int
    attempt: int
    tenant: str
    start_ns: int
    end_ns: int
    served: bool
    """True when it reached the provider; False when it ended (refused, abandoned, still open) without."""

    @property
    def length_ns(self) -> int:
        """How long it waited; for work that never got out, at least so long."""
        return self.end_ns - self.start_ns


def calls_by_attempt(ledger: Iterable[LedgerEntry]) -> dict[Key, list[LedgerEntry]]:
    """The provider's calls for each (seq, attempt), in order of arrival; unattributed calls left out."""
    calls: dict[Key, list[LedgerEntry]] = {}
    for call in ledger:
        if call.seq is not None and call.attempt is not None:
            calls.setdefault((call.seq, call.attempt), []).append(call)
    for mine in calls.values():
        if len(mine) > 1:
            mine.sort(key=lambda call: call.arrived_ns)
    return calls


def in_gateway(record: RequestRecord) -> bool:
    """Whether the gateway held this attempt: it was sent, and not merely refused at once."""
    if record.outcome is Outcome.UNSENT:
        return False
    return record.outcome is not Outcome.REJECTED or record.ended_ns - record.sent_ns > FAST_REFUSAL_NS


def waits(records: Iterable[RequestRecord], ledger: Iterable[LedgerEntry]) -> list[Wait]:
    """Every attempt's wait for the provider, fast refusals left out. Transit counts as waiting."""
    calls = calls_by_attempt(ledger)
    found: list[Wait] = []
    for record in records:
        if not in_gateway(record):
            continue
        mine = calls.get((record.seq, record.attempt))
        end = mine[0].arrived_ns if mine else record.ended_ns
        found.append(
            Wait(
                record.seq,
                record.attempt,
                record.tenant,
                record.sent_ns,
                max(record.sent_ns, end),
                bool(mine),
            )
        )
    return found


def depth_steps(records: Iterable[RequestRecord], ledger: Iterable[LedgerEntry]) -> list[Step]:
    """The hidden queue's depth over time, never negative.

    Each call is looked at only while its own attempt was in flight, so a call that outlives its client (one
    not cancelled) does not hide somebody else's wait. The time between a call's end and the client's last
    byte, and between two calls of one attempt, counts as held by the gateway.
    """
    calls = calls_by_attempt(ledger)
    held: list[Interval] = []
    for record in records:
        if not in_gateway(record):
            continue
        since = record.sent_ns
        for call in calls.get((record.seq, record.attempt), ()):
            held.append((since, min(call.arrived_ns, record.ended_ns)))
            since = max(since, record.ended_ns if call.ended_ns is None else call.ended_ns)
        held.append((since, record.ended_ns))
    return overlap_count(held)


class GaugeAgreement(msgspec.Struct, frozen=True):
    """How far a gateway's own gauge is from the hidden queue, in requests."""

    n: int
    median: float
    p95: float


def compare_with_gauge(steps: Sequence[Step], samples: Iterable[Sample], gauge: str) -> GaugeAgreement | None:
    """Absolute differences between the gateway's gauge and the hidden queue; None without samples.

    In the reference gateway the median must be within 1 and the p95 within 3.
    """
    differences = [
        abs(sample.values[gauge] - value_at(steps, sample.at_ns))
        for sample in samples
        if sample.source == "gateway" and gauge in sample.values
    ]
    if not differences:
        return None
    return GaugeAgreement(len(differences), percentile(differences, 50), percentile(differences, 95))
