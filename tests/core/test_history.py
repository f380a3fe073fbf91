from __future__ import annotations

import math

from agentload.evidence.history import (
    answered_share,
    counted_phases,
    counted_records,
    end_ns,
    from_sent,
    latencies_ns,
    logical_requests,
    requests_of,
    tenant_names,
    without_undecided,
    without_windows,
)
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import NS, Outcome


def retried(build: RunBuilder) -> None:
    """Wanted at 100 ms, refused twice, answered at 2,560 ms."""
    build.refused("a", 100, seq=900, attempt=0, final=False)
    build.refused("a", 1_101, seq=900, attempt=1, first_due_ms=100, final=False)
    build.answered("a", 2_500, seq=900, attempt=2, first_due_ms=100, service_ms=60)


def test_attempts_become_one_request_whose_latency_counts_from_the_first_intended_start() -> None:
    build = RunBuilder(profile())
    retried(build)
    build.records.reverse()  # the order of the records does not matter
    (request,) = logical_requests(build.records)
    assert [attempt.attempt for attempt in request.attempts] == [0, 1, 2]
    assert request.answered
    assert request.refused
    assert request.latency_ns == (2_560 - 100) * MS


def test_what_was_never_answered_took_for_ever() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0, service_ms=5)
    for outcome in (Outcome.FAILED, Outcome.TRUNCATED, Outcome.ABANDONED, Outcome.UNFINISHED):
        build.ended("a", 10, outcome)
    build.refused("a", 10)
    build.refused("a", 10, status=504)
    requests = logical_requests(build.records)
    assert latencies_ns(requests) == [5 * MS] + [math.inf] * 6
    assert answered_share(requests) == 1 / 7
    assert answered_share([]) == 1


def test_load_that_was_not_sent_says_nothing_about_the_gateway() -> None:
    build = RunBuilder(profile())
    build.answered("a", 0)
    build.ended("a", 5, Outcome.UNSENT, after_ms=0)
    assert [request.seq for request in requests_of(build.run(), ["a"])] == [0]


def test_warm_ups_do_not_count() -> None:
    build = RunBuilder(profile(phases={"warm-up": 1.0, "load": 1.0}))
    build.answered("a", 500)
    build.answered("a", 1_500)
    run = build.run()
    assert counted_phases(run) == ["load"]
    assert [record.seq for record in counted_records(run)] == [1]


def test_a_request_belongs_to_the_phase_in_which_it_was_first_wanted() -> None:
    build = RunBuilder(profile(phases={"one": 1.0, "two": 5.0}))
    retried(build)
    assert [request.phase for request in requests_of(build.run(), ["a"])] == ["one"]


def test_references_name_tenants_or_groups() -> None:
    run = RunBuilder(
        profile(
            phases={"quiet": 1.0, "loud": 1.0},
            tenants={"quiet-1": 1.0, "quiet-2": 1.0, "flood": 1.0},
            only={"flood": ("loud",)},
        )
    ).run()
    assert tenant_names(run, ()) == ["quiet-1", "quiet-2", "flood"]
    assert tenant_names(run, ("quiet",)) == ["quiet-1", "quiet-2"]
    assert tenant_names(run, ("flood", "quiet-2", "flood")) == ["quiet-2", "flood"]
    assert tenant_names(run, (), "quiet") == ["quiet-1", "quiet-2"]


def test_counting_from_the_send_takes_the_generators_lateness_out() -> None:
    build = RunBuilder(profile())
    retried(build)
    for record in build.records:
        record.sent_ns += 30 * MS
    (request,) = logical_requests(from_sent(build.run()).records)
    assert request.first.due_ns == request.first.first_due_ns == 130 * MS
    assert request.latency_ns == (2_560 - 130) * MS
    assert build.records[0].due_ns == 100 * MS, "the run itself is left as it was"


def test_hiding_a_window_takes_whole_requests_and_the_calls_that_arrived_in_it() -> None:
    build = RunBuilder(profile())
    retried(build)  # its second attempt lies in the window
    build.answered("a", 900, service_ms=50)
    build.answered("a", 1_000, wait_ms=250, service_ms=50)  # waits through the window, arrives after it
    build.answered("a", 1_300)
    left = without_windows(build.run(), [(1_050 * MS, 1_200 * MS)])
    assert [record.due_ns // MS for record in left.records] == [900, 1_300]
    assert [call.arrived_ns // MS for call in left.ledger] == [2_500, 900, 1_250, 1_300]


def test_an_interruption_leaves_young_requests_undecided_and_old_ones_unanswered() -> None:
    build = RunBuilder(profile())  # drain_s is 10
    old = build.ended("a", 0, Outcome.UNFINISHED, after_ms=12_000)
    build.ended("a", 5_000, Outcome.UNFINISHED, after_ms=7_000)
    build.refused("a", 8_000, final=False)  # was told to come back, and could not
    given_up = build.refused("a", 8_000)
    answered = build.answered("a", 8_000)
    left = without_undecided(build.run())
    assert [record.seq for record in left.records] == [old.seq, given_up.seq, answered.seq]


def test_a_run_ends_with_the_last_thing_recorded() -> None:
    build = RunBuilder(profile())
    assert end_ns(build.run()) == 0
    build.answered("a", 1_000, service_ms=500)
    build.call(None, 2_000, 2_100, build.ledger[0].ending)
    assert end_ns(build.run()) == 2 * NS
