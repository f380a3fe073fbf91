"""Clients that leave: what becomes of their calls, in service and still queued."""

from __future__ import annotations

import pytest

from agentload.checks import Check
from agentload.checks.cancel_upstream import CancelUpstream
from agentload.checks.no_ghosts import NoGhosts
from agentload.evidence.departures import departures, grace_ns
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.judge import judge
from agentload.model import CallEnding, Outcome, Run, Severity, Spec, Status, Verdict
from agentload.promises import Promises, Truth

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


def leaving(*lags_ms: float | None, ending: CallEnding = CallEnding.CANCELLED) -> Run:
    """Clients leave 50 ms after sending, with their call in service; it ends so much later (None: never)."""
    build = RunBuilder(profile(phases={"load": 60.0}, tenants={"a": 1.0}))
    for k, lag_ms in enumerate(lags_ms):
        at_ms = 500.0 * k
        record = build.ended("a", at_ms, Outcome.ABANDONED, after_ms=50)
        if lag_ms is None:
            build.call(record, at_ms + 1, at_ms, CallEnding.OPEN).ended_ns = None
        else:
            build.call(record, at_ms + 1, at_ms + 50 + lag_ms, ending)
    return build.run()


def test_grace_is_two_round_trips_and_a_tenth_of_a_second() -> None:
    assert grace_ns(10, 100) == 120 * MS
    assert grace_ns(0.5, 0) == MS


def test_what_was_in_flight_or_queued_when_a_client_left() -> None:
    run = leaving(10)
    record = run.records[0]
    found = departures(run.records, run.ledger)[0]
    assert (found.at_ns, found.queued, len(found.in_flight)) == (50 * MS, False, 1)
    build = RunBuilder(run.profile)
    build.call(record, 60, 90, CallEnding.COMPLETED)  # it comes only afterwards
    found = departures(run.records, build.ledger)[0]
    assert (found.queued, found.in_flight) == (True, [])
    build.call(record, 10, 50, CallEnding.COMPLETED)  # it was over just then
    assert departures(run.records, build.ledger)[0].in_flight == []
    assert departures([build.answered("a", 0)], []) == []


@pytest.mark.parametrize("check", [CancelUpstream(), NoGhosts()])
def test_who_could_not_say_that_it_left_is_not_held_against_the_gateway(check: Check) -> None:
    late = ghosts(30) if isinstance(check, NoGhosts) else leaving(*([500.0] * 30))
    assert check.judge(late).status is FAILED
    for record in late.records:
        record.silent = True
    verdict = check.judge(late)
    assert verdict.status is INCONCLUSIVE
    assert "left out: 30 who left work that is asked after" in verdict.because
    assert "jobs.cancel" in verdict.because
    for record in late.records:
        record.silent, record.called_off = False, 204
    assert check.judge(late).status is FAILED, "the gateway was told"
    for record in late.records[:4]:
        record.called_off = 404
    assert "4 of 30 requests to call work off were not taken (mostly 404)" in check.judge(late).because


def ghosts(count: int) -> Run:
    """Clients leave a second after sending, and their calls come a second later."""
    build = RunBuilder(profile(phases={"load": 60.0}, tenants={"a": 1.0}))
    for k in range(count):
        record = build.ended("a", 200.0 * k, Outcome.ABANDONED, after_ms=1_000)
        build.call(record, 200.0 * k + 2_000, 200.0 * k + 2_050, CallEnding.COMPLETED)
    return build.run()


@pytest.mark.parametrize(
    ("lags_ms", "status"),
    [
        ([120.0] * 20, PASSED),
        ([120.0] * 19, INCONCLUSIVE),
        ([120.0] * 19 + [121.0], PASSED),  # 5 %
        # 2 of 20 late: P(X ≥ 2 | 20, 0.05) = 0.26; 6: 0.0003.
        ([120.0] * 18 + [121.0] * 2, INCONCLUSIVE),
        ([120.0] * 14 + [121.0] * 6, FAILED),
        ([121.0] * 3, FAILED),  # 0.05³ = 0.0001: three of three need no more
        ([121.0] * 2, INCONCLUSIVE),
    ],
)
def test_one_in_twenty_may_be_late(lags_ms: list[float], status: Status) -> None:
    assert CancelUpstream().judge(leaving(*lags_ms)).status is status


def test_the_measure_is_the_p95_of_the_lags() -> None:
    verdict = CancelUpstream().judge(leaving(*([5.0] * 20 + [500.0] * 20)))
    assert (verdict.status, verdict.measured, verdict.bound, verdict.n) == (FAILED, 500, 120, 40)
    assert "20 of 40 calls" in verdict.because
    assert "0 of them to their end" in verdict.because
    ran_on = CancelUpstream().judge(leaving(*([500.0] * 20), ending=CallEnding.COMPLETED))
    assert "20 of them to their end" in ran_on.because


def test_a_call_that_never_ends_counts_until_the_run_does() -> None:
    # The first client left at 0.05 s, and the last thing that the run holds is of 9.55 s.
    verdict = CancelUpstream().judge(leaving(None, *([5.0] * 19)))
    assert verdict.status is PASSED
    assert verdict.details["max_ms"] == pytest.approx(9_500)
    only_just = CancelUpstream().judge(leaving(*([5.0] * 20), None))
    assert (only_just.status, only_just.n) == (PASSED, 20), "the last one has not had its grace"


def test_another_network_has_another_round_trip() -> None:
    run = leaving(*([180.0] * 20))
    assert CancelUpstream().judge(run).status is FAILED
    assert CancelUpstream(rtt_ms=40).judge(run).status is PASSED


def queued(*arrivals_ms: float | None) -> Run:
    """Clients leave after a second in the queue; their call reaches the provider so long after that."""
    build = RunBuilder(profile(phases={"load": 60.0}, tenants={"a": 1.0}))
    for k, arrival_ms in enumerate(arrivals_ms):
        at_ms = 500.0 * k
        record = build.ended("a", at_ms, Outcome.ABANDONED, after_ms=1_000)
        if arrival_ms is not None:
            came_ms = at_ms + 1_000 + arrival_ms
            build.call(record, came_ms, came_ms + 50, CallEnding.COMPLETED)
    return build.run()


@pytest.mark.parametrize(
    ("arrivals_ms", "ghosts", "status"),
    [
        ([None] * 20, 0, PASSED),
        ([None] * 19, 0, INCONCLUSIVE),
        ([None] * 19 + [120.0], 0, PASSED),  # it was on its way
        ([None] * 19 + [121.0], 1, FAILED),
        ([121.0], 1, FAILED),  # one is one too many
    ],
)
def test_no_ghost_at_all_is_allowed(arrivals_ms: list[float | None], ghosts: int, status: Status) -> None:
    verdict = NoGhosts().judge(queued(*arrivals_ms))
    assert verdict.status is status
    assert verdict.measured == (ghosts if status is not INCONCLUSIVE else None)


def test_a_retry_of_the_gateways_own_for_a_client_that_left_is_a_ghost() -> None:
    run = leaving(*([5.0] * 20))
    build = RunBuilder(run.profile)
    build.ledger = run.ledger
    build.call(run.records[3], 2_000, 2_050, CallEnding.COMPLETED)
    assert NoGhosts().judge(run).measured == 1


def test_work_that_was_served_in_time_is_no_ghost() -> None:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(30):
        build.answered("a", 100 * k, wait_ms=500)
    verdict = NoGhosts().judge(build.run())
    assert (verdict.status, verdict.n) == (INCONCLUSIVE, 0), "nobody left"


def test_a_gateway_that_does_not_queue_is_not_told_to_take_more_load() -> None:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(30):
        build.answered("a", 100 * k, wait_ms=2, service_ms=50)
        build.ended("a", 100 * k + 50, Outcome.REJECTED, status=429, after_ms=1)
    run = build.run()
    verdict = NoGhosts().judge(run)
    assert verdict.status is INCONCLUSIVE
    nothing = "nothing was queued (at most 1 request held)"
    mend = "for a gateway that does not queue there is nothing to judge"
    assert verdict.because == f"{nothing}: {mend}", "the bundled one, of which no file is written"
    [verdict] = judged(run)
    assert (verdict.status, verdict.severity) == (INCONCLUSIVE, Severity.MUST)
    key = "one that does not queue says `declares: {without: [queue]}`, and no run fails for it"
    assert verdict.because == f"{nothing}: {mend} ({key})"
    [verdict] = judged(run, Truth.QUEUE_REQUESTS)
    assert (verdict.status, verdict.severity) == (INCONCLUSIVE, Severity.SHOULD)
    assert verdict.because == f"{nothing}, as the target declares (`without: [queue]`)"
    run.interrupted = "^C"
    assert judged(run, Truth.QUEUE_REQUESTS)[0].severity is Severity.MUST, "it may have queued later"


def judged(run: Run, *denied: Truth) -> list[Verdict]:
    """What the judge says of it, of somebody's gateway that promises nothing of these."""
    run.profile = run.profile.model_copy(update={"checks": (Spec(kind="no-ghosts"),)})
    run.promises = Promises(denied=frozenset(denied))
    return judge(run)


def test_a_queue_that_was_declared_not_to_be_is_judged_all_the_same() -> None:
    assert [v.status for v in judged(ghosts(30), Truth.QUEUE_REQUESTS)] == [FAILED]
    [few] = judged(queued(None), Truth.QUEUE_REQUESTS)
    assert (few.status, few.severity) == (INCONCLUSIVE, Severity.MUST), "it queued, and was not shown sound"


def test_no_run_fails_for_departures_that_nobody_could_tell_of() -> None:
    run = ghosts(30)
    for record in run.records:
        record.silent = True
    assert judged(run)[0].severity is Severity.MUST
    run.hears_departures = False
    [verdict] = judged(run)
    assert (verdict.status, verdict.severity) == (INCONCLUSIVE, Severity.SHOULD)


def test_a_queue_that_nobody_left_is_one() -> None:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(40):
        build.answered("a", 10 * k, wait_ms=1_000)
    assert NoGhosts().judge(build.run()).because.startswith("only 0 clients left while their request was")
