"""Shares of the work over time: what each tenant got, what it asked for, and what it was entitled to.

The run is cut into intervals. In each, what the provider took up is divided by weighted max-min fairness
(`fairness.entitled_shares`) among the tenants' demands, and that is compared with who really got it. A
tenant's demand is the work of its attempts that wanted to be served in the interval; an open loop does not
ask again for what a fair gateway would have served it earlier, though in truth it still waits. Shares over a
whole run count only the intervals in which more was asked for than served: without contention shares mean
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from agentload.evidence.attribution import untraced
from agentload.evidence.fairness import Service, entitled_shares, services
from agentload.evidence.hidden_queue import calls_by_attempt
from agentload.model import LedgerEntry, Outcome, RequestRecord, Run

CONTENDED = 1.2
"""An interval is contended when demand exceeds service by a fifth: less is work that crosses a boundary."""

Amounts = dict[str, float]


class Contention(msgspec.Struct, frozen=True):
    """Work per tenant in every interval of a run; tenants without any are left out of an interval."""

    served: list[Amounts]
    entitled: list[Amounts]
    contended: list[bool]
    measured_by: Literal["ledger", "client"]
    """ledger: what the provider took up; client: what clients were answered (the provider is not ours)."""

    def shares(self, counted: Sequence[bool]) -> tuple[Amounts, Amounts]:
        """(work share, entitled share) per tenant over the intervals that count, 0..1 each."""
        got, due = _summed(self.served, counted), _summed(self.entitled, counted)
        total = sum(got.values())
        if not total:
            return {}, {}
        return {t: w / total for t, w in got.items()}, {t: w / total for t, w in due.items()}


def contention(run: Run, edges_ns: Sequence[int]) -> Contention:
    """The whole story, over the intervals between the edges (equally long, ascending).

    Where too many calls are nobody's, nobody's share is known, and the intervals are empty.
    """
    if untraced(run):
        empty: list[Amounts] = [{} for _ in edges_ns[1:]]
        return Contention(empty, empty, [False for _ in empty], "ledger")
    by_ledger = run.ledger_available and bool(run.ledger)
    found = services(run.ledger) if by_ledger else _client_services(run.records)
    served = _per_interval(((s.at_ns, s.tenant, s.work) for s in found), edges_ns)
    offered = _per_interval(((r.due_ns, r.tenant, _work(r)) for r in run.records if r.attempt == 0), edges_ns)
    wanted = _wanted(run.records, run.ledger if by_ledger else (), edges_ns)
    entitled, contended = _divide(run, served, offered, wanted)
    return Contention(served, entitled, contended, "ledger" if by_ledger else "client")


def _divide(
    run: Run, served: list[Amounts], offered: list[Amounts], wanted: list[Amounts]
) -> tuple[list[Amounts], list[bool]]:
    """What each tenant was entitled to in each interval, and whether there was anything to compete for."""
    weights = {tenant.name: tenant.weight for tenant in run.profile.tenants}
    closed = {tenant.name for tenant in run.profile.tenants if tenant.awaits_answers}
    unmet: Amounts = {}
    entitled: list[Amounts] = []
    contended: list[bool] = []
    for got, new, want in zip(served, offered, wanted, strict=True):
        demands: Amounts = {}
        for tenant in (name for name in weights if name in got or name in want):
            unmet[tenant] = unmet.get(tenant, 0.0) + new.get(tenant, 0.0)
            asked = want.get(tenant, 0.0)
            demands[tenant] = max(
                got.get(tenant, 0.0), asked if tenant in closed else min(asked, unmet[tenant])
            )
        total = sum(got.values())
        due = entitled_shares(total, weights, demands) if total else {}
        for tenant, work in due.items():
            unmet[tenant] = max(0.0, unmet[tenant] - work)
        entitled.append(due)
        contended.append(bool(total) and sum(demands.values()) > CONTENDED * total)
    return entitled, contended


def _client_services(records: Iterable[RequestRecord]) -> list[Service]:
    """Without a ledger: answered work, dated when its first token (or the answer) came."""
    return [
        Service(r.first_token_ns or r.ended_ns, r.tenant, r.input_tokens + r.output_tokens)
        for r in records
        if r.outcome is Outcome.ANSWERED
    ]


def _work(record: RequestRecord) -> float:
    """Tokens in and out, as produced, or as planned where nothing came."""
    return record.input_tokens + (record.output_tokens or record.planned_output_tokens)


def _per_interval(items: Iterable[tuple[int, str, float]], edges_ns: Sequence[int]) -> list[Amounts]:
    amounts: list[Amounts] = [{} for _ in edges_ns[1:]]
    for at_ns, tenant, work in items:
        index = interval_of(at_ns, edges_ns)
        if index is not None:
            amounts[index][tenant] = amounts[index].get(tenant, 0.0) + work
    return amounts


def _wanted(
    records: Iterable[RequestRecord], ledger: Iterable[LedgerEntry], edges_ns: Sequence[int]
) -> list[Amounts]:
    """The work of every attempt, in each interval that its wait for service touches."""
    calls = calls_by_attempt(ledger)
    wanted: list[Amounts] = [{} for _ in edges_ns[1:]]
    for record in records:
        work = _work(record)
        for index in _waiting_intervals(record, calls.get((record.seq, record.attempt), ()), edges_ns):
            wanted[index][record.tenant] = wanted[index].get(record.tenant, 0.0) + work
    return wanted


def _waiting_intervals(
    record: RequestRecord, calls: Sequence[LedgerEntry], edges_ns: Sequence[int]
) -> Iterable[int]:
    """The intervals in which the attempt waited; without a ledger, its wait ends at the first token."""
    started = next((call.started_ns for call in calls if call.started_ns is not None), None)
    until = started or record.first_token_ns or record.ended_ns
    first = interval_of(record.due_ns, edges_ns)
    if first is None:
        return ()
    last = interval_of(max(until, record.due_ns), edges_ns)
    return range(first, len(edges_ns) - 1 if last is None else last + 1)


def interval_of(at_ns: int, edges_ns: Sequence[int]) -> int | None:
    """Index of the interval that holds an instant; None outside of all."""
    if not edges_ns[0] <= at_ns < edges_ns[-1]:
        return None
    return (at_ns - edges_ns[0]) // (edges_ns[1] - edges_ns[0])


def _summed(amounts: Sequence[Mapping[str, float]], counted: Sequence[bool]) -> Amounts:
    total: Amounts = {}
    for one, counts in zip(amounts, counted, strict=True):
        if counts:
            for tenant, work in one.items():
                total[tenant] = total.get(tenant, 0.0) + work
    return total
