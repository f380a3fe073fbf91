"""The driver's pure parts: heartbeat, clock comparison, tally, collector, the generator's health."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.client.logical import AttemptResult
from agentload.drivers.bookkeeper import BATCH, Bookkeeper
from agentload.drivers.call import Call
from agentload.drivers.collector import Collector, Files
from agentload.drivers.health import assess, highest_stated, lateness_bound_ms, reassess, without_silent_users
from agentload.drivers.heartbeat import ProcessorUse, StallFinder, resident_bytes, run_queue_wait_ns
from agentload.drivers.protocol import (
    Counts,
    Done,
    Report,
    WorkerState,
    clock_offset_ns,
    event_line,
    read_event,
)
from agentload.drivers.tally import Tally
from agentload.measure import read_log
from agentload.model import (
    Distribution,
    GeneratorHealth,
    LocustUsers,
    Outcome,
    RequestRecord,
    Spec,
    Stall,
    Tenant,
)
from driver_scene import profile

MS = 1_000_000


def record(seq: int = 0, **more: object) -> RequestRecord:
    values: dict[str, object] = {
        "seq": seq,
        "attempt": 0,
        "tenant": "a",
        "service_class": "standard",
        "phase": "steady",
        "due_ns": 0,
        "sent_ns": 1 * MS,
        "ended_ns": 11 * MS,
        "outcome": Outcome.ANSWERED,
        "final": True,
        "first_due_ns": 0,
    }
    return RequestRecord(**(values | more))  # type: ignore[arg-type]


# --------------------------------------------------------------------------- heartbeat and clock


def test_a_late_beat_is_a_stall_that_begins_when_it_was_due() -> None:
    finder = StallFinder(0, "worker-0", beat_ns=10 * MS, stall_ns=50 * MS)
    assert finder.beat(10 * MS) is None
    assert finder.beat(70 * MS) is None
    assert finder.beat(131 * MS) == Stall(start_ns=80 * MS, end_ns=131 * MS, where="worker-0")
    assert finder.worst_ns == 51 * MS


def test_shares_of_the_processor_are_shares() -> None:
    use = ProcessorUse()
    sum(range(200_000))
    cpu, waited = use.shares()
    assert 0 < cpu < 3
    assert 0 <= waited < 2
    assert run_queue_wait_ns() >= 0
    assert resident_bytes() >= 0


@given(st.integers(-(10**15), 10**15), st.integers(1000, 10**6), st.integers(0, 100), st.integers(0, 10**6))
def test_clocks_of_two_hosts_are_told_apart_to_half_a_round_trip(
    truth_ns: int, trip_ns: int, there_percent: int, slower_ns: int
) -> None:
    asked = 10**16
    there = trip_ns * there_percent // 100
    quick = (asked, asked + there - truth_ns, asked + trip_ns)
    slow = (asked, asked - truth_ns, asked + trip_ns + 1 + slower_ns)
    found = clock_offset_ns([slow, quick])
    assert abs(found - truth_ns) <= (trip_ns + 1) // 2 + (abs(truth_ns) if abs(truth_ns) <= trip_ns else 0)


def test_one_clock_is_recognised() -> None:
    assert clock_offset_ns([(100, 140, 200), (300, 390, 420)]) == 0
    with pytest.raises(ValueError):
        clock_offset_ns([])


def test_events_travel_as_lines() -> None:
    line = event_line(Done(interrupted="stopped", records=3, trustworthy=False))
    assert '"event":"done"' in line
    assert read_event(line) == Done(interrupted="stopped", records=3, trustworthy=False)


# --------------------------------------------------------------------------- tally


def test_outcomes_and_metrics_are_kept_apart() -> None:
    tally = Tally()
    tally.of("a").offered += 1
    tally.ended(record())
    tally.ended(record(outcome=Outcome.REJECTED, final=False))
    tally.ended(record(stream=True, first_token_ns=5 * MS))
    counts, histograms = tally.take()
    assert counts["a"] == Counts(
        offered=1, retries=0, in_flight=0, outcomes={"answered": 2, "rejected": 1}, ended={"answered": 2}
    )
    found = {(h.metric, h.outcome): sum(h.state.cells.values()) for h in histograms}
    assert found == {
        ("lateness", ""): 3,
        ("latency", "answered"): 2,
        ("latency", "rejected"): 1,
        ("service", "answered"): 2,
        ("service", "rejected"): 1,
        ("logical", "answered"): 2,
        ("first-token", "answered"): 1,
    }
    assert tally.take() == ({}, [])


def test_warm_ups_and_unsent_load_are_counted_but_not_measured() -> None:
    tally = Tally(unrecorded_phases=["warm-up"])
    tally.ended(record(phase="warm-up"))
    tally.token_gaps("a", "warm-up", [1, 2])
    tally.ended(record(outcome=Outcome.UNSENT))
    counts, histograms = tally.take()
    assert counts["a"].outcomes == {"answered": 1, "unsent": 1}
    assert histograms == []


def test_gaps_lie_between_arrivals() -> None:
    tally = Tally()
    tally.token_gaps("a", "steady", [1 * MS, 3 * MS, 6 * MS])
    tally.token_gaps("a", "steady", [1 * MS])
    _, [gaps] = tally.take()
    assert (gaps.metric, gaps.state.total_us, gaps.state.max_us) == ("inter-token", 5000, 3000)


# --------------------------------------------------------------------------- bookkeeper


def test_what_has_ended_is_settled_in_batches_and_in_order() -> None:
    told: list[int] = []
    books = Bookkeeper(Tally(), lambda record, _: told.append(record.seq))
    for seq in range(BATCH + 2):
        books.keep(record(seq), call())
    assert told == list(range(BATCH))
    books.settle()
    assert told == list(range(BATCH + 2))
    books.keep(record(BATCH + 2), call())
    assert [one.seq for one in books.take_records()] == [*told] == list(range(BATCH + 3))
    assert books.take_records() == []
    assert books.tally.counts["a"].outcomes == {"answered": BATCH + 3}


def test_what_was_never_sent_is_counted_and_told_to_nobody() -> None:
    told: list[int] = []
    books = Bookkeeper(Tally(), lambda record, _: told.append(record.seq))
    books.keep(record(0, outcome=Outcome.UNSENT), None)
    books.keep(record(1, stream=True), call([1 * MS, 3 * MS, 6 * MS]))
    assert [one.seq for one in books.take_records()] == [0, 1]
    assert told == [1]
    counts, histograms = books.tally.take()
    assert counts["a"].outcomes == {"unsent": 1, "answered": 1}
    assert [h.state.total_us for h in histograms if h.metric == "inter-token"] == [5000]


def test_whoever_is_told_can_lose_no_record() -> None:
    told: list[int] = []

    def stops_at_the_second(record: RequestRecord, _: Call) -> None:
        told.append(record.seq)
        if record.seq == 1:
            raise GeneratorExit

    books = Bookkeeper(Tally(), stops_at_the_second)
    for seq in range(4):
        books.keep(record(seq), call())
    with pytest.raises(GeneratorExit):
        books.settle()
    assert [one.seq for one in books.take_records()] == told == [0, 1, 2, 3]
    assert books.tally.counts["a"].outcomes == {"answered": 4}


def call(token_arrivals_ns: list[int] | None = None) -> Call:
    result = AttemptResult(outcome=Outcome.ANSWERED, sent_ns=1 * MS)
    return Call(result, 11 * MS, token_arrivals_ns=token_arrivals_ns or [])


# --------------------------------------------------------------------------- collector


def report(index: int, sequence: int, kept: list[RequestRecord], total: int, **more: object) -> Report:
    tally = Tally()
    for one in kept:
        tally.of(one.tenant).offered += 1
        tally.ended(one)
    counts, histograms = tally.take()
    made = Report(
        index=index,
        sequence=sequence,
        records=msgspec.json.Encoder().encode_lines(kept),
        records_total=total,
        counts=counts,
        histograms=histograms,
        stalls=[],
        state=WorkerState(scheduled=10, issued=len(kept)),
    )
    return msgspec.msgpack.decode(
        msgspec.msgpack.encode(msgspec.structs.replace(made, **more)),
        type=Report,
    )


@pytest.fixture
def collector(tmp_path: Path) -> Generator[Collector]:
    files = Files(tmp_path, 1000.0)
    yield Collector(files, ["a", "b"], scheduled={0: 10, 1: 10}, in_flight_cap=100)
    files.close()


def test_reports_of_two_workers_are_added_up(collector: Collector, tmp_path: Path) -> None:
    collector.report(report(0, 1, [record(0), record(2)], 2), 0)
    collector.report(report(1, 1, [record(1)], 1), 0)
    collector.report(report(1, 1, [record(1)], 1), 0)
    collector.end_interval(1_000 * MS)
    progress = collector.progress(1_000 * MS)
    a = progress.tenants[0]
    assert (a.offered, a.answered, a.p50_ms, a.recent_p50_ms, progress.issued) == (3, 3, 11.0, 11.0, 3)
    assert (progress.scheduled, progress.workers, progress.lateness_p99_ms) == (20, 2, 1.0)
    assert len((tmp_path / "records.jsonl").read_bytes().splitlines()) == 3
    logged = {tag: recorder.count for tag, _, recorder in read_log(tmp_path / "latency.hlog")}
    assert logged == {
        "a/lateness": 3,
        "a/latency/answered": 3,
        "a/service/answered": 3,
        "a/logical/answered": 3,
    }
    assert collector.progress(7_000 * MS).tenants[0].recent_p50_ms is None


def test_a_lost_report_costs_known_records(collector: Collector) -> None:
    collector.report(report(0, 1, [record(0)], 1), 0)
    collector.report(report(0, 3, [record(6)], 7), 0)
    assert collector.records_lost == 5
    assert "5 requests is unknown" in collector.health().reasons[0]


def test_a_lost_worker_takes_its_open_requests_with_it(collector: Collector) -> None:
    collector.report(report(0, 1, [record(0)], 1), 0)
    collector.report(report(1, 1, [record(1)], 1, final=True), 0)
    assert not collector.settled()
    collector.lose(0, "killed")
    collector.lose(0, "killed again")
    collector.lose(1, "ended as it should")
    assert collector.settled()
    health = collector.health()
    assert (health.workers, health.workers_lost, health.records_lost) == (2, 1, 9)
    assert not health.trustworthy


# --------------------------------------------------------------------------- health


def healthy(**more: object) -> GeneratorHealth:
    base = GeneratorHealth(
        scheduled=1000,
        issued=1000,
        lateness_ms=Distribution(p50=0.2, p95=1.0, p99=3.0, n=1000),
        trustworthy=False,
    )
    return msgspec.structs.replace(base, **more)


def test_load_as_planned_is_trusted() -> None:
    assert assess(healthy()).trustworthy
    assert assess(healthy()).reasons == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"issued": 990}, "10 of 1000 planned requests were not sent"),
        ({"issued": 990, "capped": 10, "in_flight_cap": 5}, "10 requests were not sent because 5 were open"),
        ({"workers": 2, "workers_lost": 1}, "1 of 2 workers died"),
        ({"records_lost": 4}, "4 requests is unknown"),
        ({"lateness_ms": Distribution(p50=0.1, p95=1.0, p99=20.1, n=400)}, "p99 20.1 ms, bound 20.0 ms"),
        ({"lateness_ms": Distribution(p50=0.1, p95=25.0, n=100)}, "p95 25.0 ms"),
    ],
)
def test_each_flaw_is_named(changes: dict[str, object], said: str) -> None:
    found = assess(healthy(**changes))
    assert not found.trustworthy
    assert len(found.reasons) == 1
    assert said in found.reasons[0]


def never_sent(seq: int, reason: str) -> RequestRecord:
    record = sent(seq, 0)
    return msgspec.structs.replace(record, outcome=Outcome.UNSENT, reason=reason)


def test_what_an_interrupted_run_would_have_sent_later_is_not_missing() -> None:
    records = [sent(k, 0) for k in range(30)] + [never_sent(k, "stopped-early") for k in range(30, 40)]
    health = healthy(scheduled=40, issued=30)
    assert reassess(health, records, 10_000_000_000, interrupted=True).reasons == []
    assert "10 of 40 planned" in reassess(health, records, 10_000_000_000).reasons[0]
    records[-1] = never_sent(39, "load-generator-error")
    assert "1 of 40 planned" in reassess(health, records, 10_000_000_000, interrupted=True).reasons[0]


def test_requests_spoilt_by_the_generator_are_a_flaw_even_if_all_were_sent() -> None:
    records = [*(sent(k, 0) for k in range(9)), never_sent(9, "load-generator-error")]
    found = reassess(healthy(scheduled=10, issued=10), records, 10_000_000_000)
    assert not found.trustworthy
    assert found.reasons == [
        "1 requests were spoilt by an error of the load generator: see the workers' logs"
    ]


def test_users_of_ones_own_that_sent_nothing_were_no_load() -> None:
    users = LocustUsers.model_validate({"file": "/users.py", "class": "Noise", "sha256": "0"})
    chosen = profile(10, Tenant(name="own", group="own", client=Spec(kind="no-retry"), locust=users))
    sound = healthy(trustworthy=True)
    assert without_silent_users(sound, chosen, [msgspec.structs.replace(sent(1, 0), tenant="own")]) == sound
    found = without_silent_users(sound, chosen, [sent(1, 0)])
    assert not found.trustworthy
    assert "the users of own (Noise) sent no request" in found.reasons[0]


def test_slow_targets_forgive_a_little_lateness() -> None:
    late = healthy(lateness_ms=Distribution(p50=1.0, p95=10.0, p99=60.0, n=1000))
    assert not assess(late).trustworthy
    assert not assess(late, baseline_p50_ms=500).trustworthy
    assert assess(late, baseline_p50_ms=700).trustworthy
    assert lateness_bound_ms(None) == lateness_bound_ms(199) == 20.0


def test_too_few_samples_state_nothing() -> None:
    assert highest_stated(Distribution(n=5)) == ("p99", None)


def sent(due_ms: int, late_ms: int) -> RequestRecord:
    due_ns = due_ms * 1_000_000
    return RequestRecord(
        seq=due_ms,
        attempt=0,
        tenant="t",
        service_class="standard",
        phase="only",
        due_ns=due_ns,
        sent_ns=due_ns + late_ms * 1_000_000,
        ended_ns=due_ns + (late_ms + 50) * 1_000_000,
        outcome=Outcome.ANSWERED,
        final=True,
        first_due_ns=due_ns,
    )


def stalled_run(stalls: list[Stall]) -> GeneratorHealth:
    """1,000 requests in 10 s; those due in the half second from 2 s on were sent at its end."""
    late = {due: 2500 - due for due in range(2000, 2500, 10)}
    records = [sent(due, late.get(due, 1)) for due in range(0, 10_000, 10)]
    whole = Distribution(p50=1.0, p95=1.0, p99=400.0, n=1000)
    return reassess(healthy(lateness_ms=whole, stalls=stalls), records, 10_000_000_000)


def test_a_stall_of_a_moment_does_not_make_the_rest_untrustworthy() -> None:
    stall = Stall(start_ns=2_000_000_000, end_ns=2_495_000_000, where="worker-0")
    found = stalled_run([stall])
    assert found.trustworthy
    assert found.calm_lateness_ms is not None
    assert found.calm_lateness_ms.p99 == 1.0
    assert found.lateness_ms.p99 == 400.0, "what was measured stays in the report"


def test_lateness_that_no_stall_explains_stands() -> None:
    assert not stalled_run([]).trustworthy
    elsewhere = Stall(start_ns=6_000_000_000, end_ns=6_100_000_000, where="worker-0")
    assert not stalled_run([elsewhere]).trustworthy


def test_a_machine_that_keeps_standing_still_is_too_busy() -> None:
    often = [Stall(start_ns=n * 10**9, end_ns=n * 10**9 + 60_000_000, where="worker-0") for n in range(10)]
    stall = Stall(start_ns=2_000_000_000, end_ns=2_495_000_000, where="worker-0")
    found = stalled_run([*often, stall])
    assert not found.trustworthy
    assert "stood still" in found.reasons[0]
