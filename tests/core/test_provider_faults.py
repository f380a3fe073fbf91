"""What goes wrong when it is told to, and only then."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fake_provider import faults
from fake_provider.call import Call, Reason, Reset, Service, Step, Then, Waiting
from fake_provider.config import FaultSpec, ProviderConfig
from fake_provider.core import Provider
from fake_provider.ledger import Ending
from provider_helpers import EXACT, MS, NS, play, refusal, request, service


def with_fault(
    kind: str,
    *,
    after_s: float = 0,
    seconds: float | None = None,
    tenant: int | None = None,
    config: dict[str, Any] | None = None,
    **params: Any,
) -> Provider:
    spec = {"kind": kind, "after_s": after_s, "seconds": seconds, "tenant": tenant, "params": params}
    return Provider(ProviderConfig.model_validate({"latency": EXACT, "faults": [spec], **(config or {})}))


def steps(core: Provider, call: Call) -> list[Step]:
    taken = []
    while call.entry.ending is Ending.OPEN:
        step = core.next_step(call)
        assert step.due_ns is not None
        core.deliver(step.due_ns, call, step)
        taken.append(step)
    return taken


def test_every_kind_is_found_by_its_files_name() -> None:
    expected = (
        "error-in-stream error-rate first-n-fail key-revoked outage quota-exhausted reset "
        "slots-cut slow slow-down stall tpm-cut truncate"
    )
    assert faults.kinds() == expected.split()
    assert faults.make(FaultSpec(kind="error_rate", params={"rate": 1}), 0).kind == "error-rate"


def test_an_unknown_kind_gets_a_suggestion() -> None:
    with pytest.raises(LookupError, match=r"no fault named 'outge' \(did you mean 'outage'"):
        faults.make(FaultSpec(kind="outge"), 0)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("slow", {}),
        ("slow", {"factor": -1}),
        ("outage", {"status": 418}),
        ("error-rate", {"rate": 2}),
        ("outage", {"x": 1}),
    ],
)
def test_wrong_parameters_are_refused(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        faults.make(FaultSpec(kind=kind, params=params), 0)


@pytest.mark.parametrize(("kind", "params"), [("tpm-cut", {"factor": 0.5}), ("slots-cut", {"to": 1})])
def test_limits_are_everybodys(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="takes no tenant"):
        faults.make(FaultSpec(kind=kind, tenant=1, params=params), 0)


@pytest.mark.parametrize(("status", "reason"), [(503, Reason.OVERLOADED), (529, Reason.OVERLOADED)])
def test_an_outage_refuses_in_its_window_and_only_there(status: int, reason: Reason) -> None:
    core = with_fault("outage", after_s=1, seconds=2, status=status)
    service(core.arrive(NS - 1, request()))
    first, last = refusal(core.arrive(NS, request(seq=1))), refusal(core.arrive(3 * NS - 1, request(seq=2)))
    service(core.arrive(3 * NS, request(seq=3)))
    assert (first.status, first.reason, first.retry_after_s) == (status, reason, None)
    assert (first.call.entry.ending, last.call.entry.reason) == (Ending.FAULTED, "outage")
    assert core.ledger.counts.faulted == 2
    assert core.ledger.counts.conserved()


def test_a_fault_may_hit_one_tenant_only() -> None:
    core = with_fault("outage", tenant=2)
    service(core.arrive(0, request(tenant=1)))
    refusal(core.arrive(0, request(tenant=2)))
    service(core.arrive(0, request(marked=False)))


def test_an_outage_may_promise_its_end() -> None:
    core = with_fault("outage", retry_after_s=4)
    refused = refusal(core.arrive(0, request()))
    assert (refused.retry_after_s, refused.call.entry.not_before_ns) == (4, 4 * NS)


def test_an_error_rate_hits_its_share_and_the_same_calls_each_time() -> None:
    def failed() -> set[int]:
        core = with_fault("error-rate", rate=0.3)
        for seq in range(2_000):
            core.arrive(0, request(seq=seq))
        return {e.seq for e in core.ledger.entries if e.ending is Ending.FAULTED and e.seq is not None}

    assert len(failed()) == pytest.approx(600, abs=80)
    assert failed() == failed()


def test_a_gateways_own_retry_is_not_doomed_by_an_error_rate() -> None:
    core = with_fault("error-rate", rate=0.5)
    endings = {core.arrive(0, request(seq=1)).call.entry.ending for _ in range(40)}
    assert endings == {Ending.FAULTED, Ending.OPEN}


def test_the_first_n_fail_then_all_succeed() -> None:
    core = with_fault("first-n-fail", n=3)
    endings = [core.arrive(0, request(seq=seq)).call.entry.ending for seq in range(5)]
    assert endings == [Ending.FAULTED] * 3 + [Ending.OPEN] * 2


def test_the_first_n_of_each_request_may_fail() -> None:
    core = with_fault("first-n-fail", n=1, per="request", status=503)
    endings = [core.arrive(0, request(seq=seq)).call.entry.ending for seq in (1, 2, 1, 2, 2)]
    assert endings == [Ending.FAULTED] * 2 + [Ending.OPEN] * 3
    service(core.arrive(0, request(marked=False)))


def test_a_spent_quota_promises_nothing() -> None:
    refused = refusal(with_fault("quota-exhausted").arrive(0, request()))
    assert (refused.status, refused.reason, refused.retry_after_s) == (429, Reason.QUOTA, None)


def test_slow_down_asks_for_patience() -> None:
    refused = refusal(with_fault("slow-down", retry_after_s=7).arrive(0, request()))
    assert (refused.status, refused.reason, refused.retry_after_s) == (429, Reason.SLOW_DOWN, 7)
    service(with_fault("slow-down", share=0).arrive(0, request()))


def test_a_reset_at_arrival_is_no_answer_at_all() -> None:
    core = with_fault("reset")
    decision = core.arrive(0, request())
    assert isinstance(decision, Reset)
    assert (decision.call.entry.ending, decision.call.entry.status) == (Ending.FAULTED, 0)
    assert core.in_service == 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_reset_may_come_in_the_middle(stream: bool) -> None:
    core = with_fault("reset", after_tokens=3)
    call = service(core.arrive(0, request(output=10, stream=stream)))
    last = steps(core, call)[-1]
    assert (last.then, last.due_ns, call.entry.output_tokens) == (Then.RESET, 140 * MS, 3)
    assert (call.entry.ending, call.entry.reason, call.entry.status) == (
        Ending.CUT,
        "reset",
        200 if stream else 0,
    )
    assert core.in_service == 0


@pytest.mark.parametrize(("clean", "then"), [(False, Then.CLOSE), (True, Then.END)])
@pytest.mark.parametrize("stream", [True, False])
def test_a_truncated_answer_stops_half_way(clean: bool, then: Then, stream: bool) -> None:
    core = with_fault("truncate", clean=clean)
    call = service(core.arrive(0, request(output=10, stream=stream)))
    assert steps(core, call)[-1].then is then
    assert (call.entry.output_tokens, call.entry.ending, call.entry.reason) == (5, Ending.CUT, "truncate")


def test_an_error_in_the_stream_leaves_plain_calls_alone() -> None:
    core = with_fault("error-in-stream", after_tokens=0)
    stream = service(core.arrive(0, request(output=10, stream=True)))
    plain = service(core.arrive(0, request(output=10)))
    assert [(s.first, s.last, s.then) for s in steps(core, stream)] == [(0, 0, Then.ERROR)]
    assert steps(core, plain)[-1].then is Then.COMPLETE


def test_slow_stretches_answers_that_begin_in_its_window() -> None:
    core = with_fault("slow", factor=3, seconds=1)
    slow = service(core.arrive(0, request(output=2)))
    usual = service(core.arrive(NS, request(seq=1, output=2)))
    assert core.next_step(slow).due_ns == 360 * MS
    assert core.next_step(usual).due_ns == NS + 120 * MS


def test_a_stall_holds_tokens_back_until_it_is_over() -> None:
    core = with_fault("stall", after_s=0.11, seconds=0.5)
    call = service(core.arrive(0, request(output=4, stream=True)))
    assert [step.due_ns for step in steps(core, call)] == [100 * MS, 610 * MS, 610 * MS, 610 * MS]
    assert call.entry.ending is Ending.COMPLETED


def test_a_stall_without_an_end_holds_until_it_is_taken_away() -> None:
    core = with_fault("stall")
    call = service(core.arrive(0, request(output=1)))
    assert core.next_step(call).due_ns is None
    assert core.remove_fault(NS)
    assert core.next_step(call).due_ns == 100 * MS


def test_overlapping_stalls_hold_until_the_last_one_ends() -> None:
    core = with_fault("stall", seconds=0.3)
    core.add_fault(0, faults.make(FaultSpec(kind="stall", after_s=0.2, seconds=0.3), 0))
    assert core.next_step(service(core.arrive(0, request(output=1)))).due_ns == 500 * MS


def test_a_tpm_cut_shrinks_the_bucket_and_gives_it_back() -> None:
    core = with_fault("tpm-cut", after_s=1, seconds=10, factor=0.5, config={"tokens_per_minute": 6_000})
    service(core.arrive(0, request(max_tokens=6_000)))

    def remaining(at_ns: int) -> int:
        call = core.arrive(at_ns, request(max_tokens=1, text_chars=0)).call
        return int(dict(core.headers(at_ns, call))[b"x-ratelimit-remaining-tokens"])

    # 100 flow in before the cut, half is left; then 50 a second; doubled at its end; every look takes one.
    assert remaining(1 * NS) == 49
    assert remaining(3 * NS) == 148
    assert remaining(11 * NS) == (148 + 8 * 50) * 2 - 1


def test_a_slots_cut_lets_calls_in_service_finish_and_waiting_ones_in_at_its_end() -> None:
    core = with_fault("slots-cut", after_s=0.05, seconds=1, to=1, config={"slots": 3, "overflow": "queue"})
    entries = play(
        core,
        [
            (0, request(seq=0, output=50)),
            (0, request(seq=1, output=50)),
            *((60 * MS, request(seq=s, output=1)) for s in (2, 3, 4)),
        ],
    )
    # Both of the first hold their slots for 1,080 ms; at 1,050 ms the cut ends and one more slot is there.
    assert [e.started_ns for e in entries] == [0, 0, 1_050 * MS, 1_080 * MS, 1_080 * MS]


def test_waiting_calls_enter_service_when_the_cut_ends_although_nothing_else_happens() -> None:
    core = with_fault("slots-cut", seconds=1, to=0, config={"overflow": "queue"})
    waiting = core.arrive(10, request())
    assert isinstance(waiting, Waiting)
    assert core.wakeup_ns() == NS
    assert core.tick(NS) == [waiting.call]
    assert core.wakeup_ns() is None


def test_a_boundary_that_an_arrival_passed_still_wakes_the_waiting() -> None:
    core = with_fault("slots-cut", seconds=1, to=0, config={"slots": 1, "overflow": "queue"})
    first = core.arrive(10, request()).call
    assert isinstance(core.arrive(NS + 5, request(seq=1)), Waiting), "it must not overtake the first"
    assert core.wakeup_ns() == NS + 5
    assert core.tick(NS + 5) == [first]


def test_faults_are_counted_anew_from_a_reset() -> None:
    core = with_fault("outage", seconds=1)
    refusal(core.arrive(0, request()))
    service(core.arrive(5 * NS, request()))
    core.reset(10 * NS, 0)
    refusal(core.arrive(10 * NS, request()))


def test_a_fault_is_taken_away_by_its_number() -> None:
    core = with_fault("slow", factor=2)
    number = core.add_fault(0, faults.make(FaultSpec(kind="outage"), 0))
    assert [fault["kind"] for fault in core.faults.listing(0)] == ["slow", "outage"]
    assert core.remove_fault(0, number)
    assert not core.remove_fault(0, number)
    assert isinstance(core.arrive(0, request()), Service)
