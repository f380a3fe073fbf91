"""Faults in virtual time: at their very nanosecond, and gone when they are over."""

from __future__ import annotations

from collections import Counter

import pytest

from agentload import profile
from agentload.model import NS, CallEnding, Outcome, RequestRecord, Run
from agentload.simulate import simulate

TEXT = """\
name: faulty
about: One fault at a time.
phases: [{name: before, seconds: 4}, {name: trouble, seconds: 4}, {name: after, seconds: 4}]
tenants:
  - name: app
    arrivals: {kind: constant, rate: 50}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 10, max_tokens: 24, stream: 0.5}
    client: CLIENT
  - name: other
    arrivals: {kind: constant, rate: 10}
    workload: {kind: fixed, input_tokens: 24, output_tokens: 4, max_tokens: 24}
provider:
  slots: 32
  overflow: queue
  latency: {first_token_ms: 100, first_token_cv: 0, inter_token_ms: 10}
gateway: {pools: {shared: {slots: 32, classes: {standard: {max_queue: 2000, max_wait_s: 30}}}}}
checks: [bounded-queue]
faults: [FAULT]
"""
ONE_WAY_NS = 100_000


def played(fault: str, client: str = "no-retry", seed: int = 1) -> Run:
    return simulate(
        profile.parse(TEXT.replace("FAULT", fault).replace("CLIENT", client), "faulty.yaml"), seed
    )


def between(run: Run, start_s: float, end_s: float) -> list[RequestRecord]:
    """Records of attempts sent in that stretch."""
    return [record for record in run.records if start_s * NS <= record.sent_ns < end_s * NS]


def outcomes(records: list[RequestRecord]) -> Counter[tuple[str, str | None]]:
    return Counter((record.outcome.value, record.reason) for record in records)


def test_a_killed_gateway_forgets_everything_and_comes_back() -> None:
    run = played("{kind: gateway-kill, at_s: 5, restart_after_s: 1.5}")
    open_then = [record for record in between(run, 4, 5) if record.ended_ns > 5 * NS]
    assert len(open_then) > 5
    assert {record.ended_ns for record in open_then} == {5 * NS + ONE_WAY_NS}
    assert {record.reason for record in open_then if not record.status} == {"connection-reset"}
    away = outcomes(between(run, 5, 6.5 - 0.001))
    assert set(away) == {("failed", "connection-refused")}
    assert away.total() == 90
    assert set(outcomes(between(run, 6.5, 12))) == {("answered", "admitted")}
    dropped = [entry for entry in run.ledger if entry.ending is CallEnding.CANCELLED]
    assert {entry.ended_ns for entry in dropped} == {5 * NS + ONE_WAY_NS}
    assert dropped
    assert not [sample for sample in run.samples if 5 * NS <= sample.at_ns < 6.5 * NS]


def test_streams_that_a_kill_cuts_are_truncated_with_what_had_come() -> None:
    cut = [
        r
        for r in played("{kind: gateway-kill, at_s: 5, restart_after_s: 1}").records
        if r.ended_ns == 5 * NS + ONE_WAY_NS
    ]
    begun = [record for record in cut if record.status == 200]
    assert {record.outcome for record in begun} == {Outcome.TRUNCATED}
    assert any(0 < record.output_tokens < 10 for record in begun)
    assert {record.outcome for record in cut if record.status == 0} == {Outcome.FAILED}


def test_a_paused_gateway_answers_late_and_loses_nothing() -> None:
    run = played("{kind: gateway-pause, at_s: 5, seconds: 2}")
    assert {record.outcome for record in run.records} == {Outcome.ANSWERED}
    held = between(run, 5, 7)
    assert len(held) == 120
    assert min(record.ended_ns for record in held) > 7 * NS
    assert max(record.ended_ns for record in held) < 8.5 * NS
    assert max(record.ended_ns - record.sent_ns for record in between(run, 11, 12)) < 0.25 * NS


def test_clients_that_leave_during_a_pause_are_noticed_after_it() -> None:
    run = played("{kind: gateway-pause, at_s: 5, seconds: 2}", "{kind: no-retry, timeout_s: 0.5}")
    left = [record for record in between(run, 5, 6.4) if record.tenant == "app"]
    assert {(record.outcome, record.reason) for record in left} == {(Outcome.ABANDONED, "timeout")}
    assert {record.outcome for record in between(run, 7.5, 12)} == {Outcome.ANSWERED}


@pytest.mark.parametrize("phase", ["before", "trouble", "after"])
def test_slots_are_cut_for_just_as_long_as_the_phase(phase: str) -> None:
    run = played(f"{{kind: slots-cut, phase: {phase}, to: 3}}")
    start_ns, end_ns = run.profile.phase_window_ns(phase)
    inside = [
        e for e in run.ledger if e.started_ns is not None and start_ns + 0.3 * NS < e.started_ns < end_ns
    ]
    rest = [e for e in run.ledger if e.started_ns is not None and not start_ns <= e.started_ns <= end_ns]
    assert max(in_service(run, entry.started_ns or 0) for entry in inside) == 3
    assert max(in_service(run, entry.started_ns or 0) for entry in rest) > 8


def in_service(run: Run, at_ns: int) -> int:
    """Calls at the provider just after an instant."""
    return sum(
        entry.started_ns is not None and entry.started_ns <= at_ns and (entry.ended_ns or at_ns + 1) > at_ns
        for entry in run.ledger
    )


def test_an_outage_hits_the_tenant_that_it_names_and_ends() -> None:
    run = played("{kind: outage, at_s: 5, seconds: 2, tenant: other}")
    refused = [record for record in run.records if record.outcome is Outcome.REJECTED]
    assert {record.tenant for record in refused} == {"other"}
    assert 5 < len(refused) <= 20
    assert all(5 * NS <= record.sent_ns < 7 * NS for record in refused)
    assert {record.outcome for record in run.records if record.tenant == "app"} == {Outcome.ANSWERED}


@pytest.mark.parametrize(
    "fault", ["gateway-kill, at_s: 5, restart_after_s: 1", "gateway-pause, at_s: 5, seconds: 1"]
)
def test_the_same_seed_is_the_same_run_with_faults_too(fault: str) -> None:
    client = "{kind: openai-sdk, timeout_s: 2}"
    first, again = (played(f"{{kind: {fault}}}", client) for _ in range(2))
    assert first.meta["digest"] == again.meta["digest"]
    assert first.records == again.records
    without = played("{kind: slow, at_s: 11.9, seconds: 0.1, factor: 1}", client)
    assert first.meta["digest"] != without.meta["digest"]
    assert first.plan.fingerprint == without.plan.fingerprint


# --------------------------------------------------------------------------- clients that leave

NONE = "{kind: slow, at_s: 11.9, seconds: 0.1, factor: 1}"


def test_a_quitter_waits_for_the_first_token_only() -> None:
    """A token comes after 100 ms; a plain answer of ten, after 190 ms."""
    run = played(NONE, "{kind: quitter, leave_s: 0.15}")
    mine = [record for record in run.records if record.tenant == "app"]
    streamed = [record for record in mine if record.stream]
    assert {record.outcome for record in streamed} == {Outcome.ANSWERED}
    plain = [record for record in mine if not record.stream]
    assert {(record.outcome, record.reason) for record in plain} == {(Outcome.ABANDONED, "left")}
    assert {record.ended_ns - record.sent_ns for record in plain} == {150_000_000}
    assert all(record.final for record in mine)


def test_a_quitter_that_has_read_enough_leaves_in_the_middle() -> None:
    run = played(NONE, "{kind: quitter, leave_tokens: 3}")
    streamed = [record for record in run.records if record.tenant == "app" and record.stream]
    assert {(record.outcome, record.output_tokens, record.status) for record in streamed} == {
        (Outcome.ABANDONED, 3, 200)
    }
    plain = [record for record in run.records if record.tenant == "app" and not record.stream]
    assert {record.outcome for record in plain} == {Outcome.ANSWERED}
    cancelled = [entry for entry in run.ledger if entry.ending is CallEnding.CANCELLED]
    assert len(cancelled) == len(streamed)
