"""Entitlement over time, against histories small enough for a pencil."""

from __future__ import annotations

import pytest

from agentload.evidence.synthetic import healthy, profile
from agentload.model import NS, CallEnding, LedgerEntry, Outcome, Plan, RequestRecord, Run, Spec, Tenant
from agentload.report.contention import Contention, contention, interval_of

EDGES = [0, NS, 2 * NS, 3 * NS]


def history(tenants: dict[str, tuple[float, bool]], calls: list[tuple[str, float, float | None]]) -> Run:
    """Tenants: name → (weight, closed loop); calls: (tenant, due in s, started in s; None: refused at once).

    Every call is 10 tokens of work.
    """
    shape = profile(phases={"load": 3.0}, tenants={name: weight for name, (weight, _) in tenants.items()})
    loops = tuple(_tenant(tenant, tenants[tenant.name][1]) for tenant in shape.tenants)
    records = [_record(seq, *call) for seq, call in enumerate(calls)]
    return Run(
        profile=shape.model_copy(update={"tenants": loops}),
        plan=Plan(seed=1, arrivals=(), closed_users=0, fingerprint="0"),
        driver="simulated",
        records=records,
        ledger=[_entry(record) for record in records if record.outcome is Outcome.ANSWERED],
        samples=[],
        health=healthy(len(records)),
    )


def _tenant(tenant: Tenant, closed: bool) -> Tenant:
    open_loop = {"users": None, "arrivals": Spec(kind="uniform", params={"rate": 1})}
    return tenant if closed else tenant.model_copy(update=open_loop)


def _record(seq: int, tenant: str, due_s: float, started_s: float | None) -> RequestRecord:
    due = round(due_s * NS)
    return RequestRecord(
        seq=seq,
        attempt=0,
        tenant=tenant,
        service_class="standard",
        phase="load",
        due_ns=due,
        first_due_ns=due,
        sent_ns=due,
        ended_ns=due if started_s is None else round(started_s * NS),
        outcome=Outcome.REJECTED if started_s is None else Outcome.ANSWERED,
        final=True,
        input_tokens=4,
        planned_output_tokens=6,
        output_tokens=0 if started_s is None else 6,
    )


def _entry(record: RequestRecord) -> LedgerEntry:
    return LedgerEntry(
        call=record.seq,
        arrived_ns=record.ended_ns,
        started_ns=record.ended_ns,
        ended_ns=record.ended_ns,
        ending=CallEnding.COMPLETED,
        tenant=record.tenant,
        seq=record.seq,
        attempt=0,
        input_tokens=4,
        output_tokens=6,
    )


def story(tenants: dict[str, tuple[float, bool]], calls: list[tuple[str, float, float | None]]) -> Contention:
    return contention(history(tenants, calls), EDGES)


OPEN, CLOSED = False, True


def test_without_contention_everybody_is_entitled_to_what_they_got() -> None:
    calls = [("a", 0.1, 0.11), ("b", 0.2, 0.21), ("a", 0.5, 0.51)]
    found = story({"a": (1, OPEN), "b": (1, OPEN)}, calls)
    assert found.served[0] == found.entitled[0] == {"a": 20, "b": 10}
    assert found.contended == [False, False, False]


def test_a_refused_tenant_is_entitled_by_weight_to_what_the_other_took() -> None:
    calls = [("a", 0.1 * k, 0.1 * k) for k in range(8)] + [("b", 0.1 * k, None) for k in range(8)]
    found = story({"a": (1, OPEN), "b": (3, OPEN)}, calls)
    assert found.served[0] == {"a": 80}
    assert found.entitled[0] == pytest.approx({"a": 20, "b": 60})
    assert found.contended[0]


def test_the_modest_get_what_they_ask_for_and_no_more() -> None:
    calls = [("a", 0.1 * k, 0.1 * k) for k in range(9)] + [("b", 0.3, None)]
    found = story({"a": (1, OPEN), "b": (9, OPEN)}, calls)
    assert found.entitled[0] == pytest.approx({"a": 80, "b": 10})


def test_an_open_loop_that_waits_on_does_not_ask_twice() -> None:
    """b's one request waits through two intervals, but a fair gateway would have served it in the first."""
    calls = [("a", 0.1 * k, 0.1 * k) for k in range(20)] + [("b", 0.3, 2.5)]
    found = story({"a": (1, OPEN), "b": (1, OPEN)}, calls)
    assert [due.get("b", 0) for due in found.entitled] == pytest.approx([10, 0, 10])


def test_a_closed_loop_that_waits_on_asks_on() -> None:
    """Had it been served, its user would have sent the next."""
    calls = [("a", 0.1 * k, 0.1 * k) for k in range(20)] + [("b", 0.3, 2.5)]
    found = story({"a": (1, CLOSED), "b": (1, CLOSED)}, calls)
    assert [due.get("b", 0) for due in found.entitled] == pytest.approx([10, 10, 10])


def test_shares_over_the_counted_intervals() -> None:
    served, entitled = [{"a": 30.0, "b": 10.0}, {"a": 5.0}], [{"a": 20.0, "b": 20.0}, {"a": 5.0}]
    found = Contention(served, entitled, [True, False], "ledger")
    assert found.shares([True, False]) == ({"a": 0.75, "b": 0.25}, {"a": 0.5, "b": 0.5})
    assert found.shares([False, False]) == ({}, {})


def test_intervals_hold_their_start_and_not_their_end() -> None:
    instants = (-1, 0, NS - 1, NS, 3 * NS - 1, 3 * NS)
    assert [interval_of(at, EDGES) for at in instants] == [None, 0, 0, 1, 2, None]
