"""Tenants that come, go and return, and long jobs among short ones, by hand and against a saturated queue."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from agentload.checks.idle_credit import IdleCredit
from agentload.checks.long_job import LongJob
from agentload.checks.rebalance import Rebalance
from agentload.evidence.contest import contest_from
from agentload.evidence.fairness import backlog, services
from agentload.evidence.hidden_queue import waits
from agentload.evidence.memberships import changes, groups
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import NS, Outcome, Run, Status

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


# --------------------------------------------------------------------------------- who is there


def test_changes_are_phases_that_begin_with_other_tenants() -> None:
    run = RunBuilder(
        profile(
            phases={"warm-up": 2.0, "one": 5.0, "two": 5.0, "three": 5.0},
            tenants={"a": 1.0, "guest-1": 1.0, "guest-2": 1.0},
            only={"guest-1": ("two",), "guest-2": ("two", "three")},
        )
    ).run()
    found = changes(run)
    assert [(c.phase, c.at_ns, c.joined, c.left) for c in found] == [
        ("two", 7 * NS, ["guest-1", "guest-2"], []),
        ("three", 12 * NS, [], ["guest-1"]),
    ]
    assert groups(run, ["guest-2", "guest-1", "a"]) == ["a", "guest"]
    assert changes(run, ["three"]) == found[1:]


def two_then_three(turns: str, *, calls: int = 500, after_s: float = 10.0, weight: float = 1.0) -> Run:
    """a and b take turns for 5 s; then c is there, too, with everything it has. A call every 20 ms."""
    tenants = {"a": 1.0, "b": 1.0, "c": weight}
    build = RunBuilder(
        profile(phases={"two": 5.0, "three": after_s}, tenants=tenants, only={"c": ("three",)})
    )
    build.dispatches(islice(cycle("ab"), 250), every_ms=20)
    build.dispatches(islice(cycle(turns), calls), every_ms=20, start_ms=5_000)
    for tenant in "abc":
        build.ended(tenant, 5_000, Outcome.UNFINISHED, after_ms=20 * calls)
    return build.run()


def test_only_tenants_that_wait_nearly_all_the_time_are_compared() -> None:
    run = two_then_three("abc")
    build = RunBuilder(run.profile)
    build.records, build.ledger = run.records, run.ledger
    waiting, served = backlog(waits(run.records, run.ledger)), services(run.ledger)
    window = (6 * NS, 12 * NS)
    contest = contest_from(run, "three", window, waiting, served, "tokens")
    assert contest is not None
    assert list(contest.weights) == ["a", "b", "c"]
    waiting["c"] = [(6 * NS, 11 * NS)]  # five sixths of it
    contest = contest_from(run, "three", window, waiting, served, "tokens")
    assert contest is not None
    assert list(contest.weights) == ["a", "b"]
    waiting["b"] = []
    assert contest_from(run, "three", window, waiting, served, "tokens") is None


# --------------------------------------------------------------------------------- idle-credit


def test_the_share_of_the_first_seconds_against_the_bound_of_fair_queueing() -> None:
    # c gets 2 of 4 turns: 50 % of 300 calls of 40 tokens. With 4 at once (and one more where one ends as the
    # next begins), fair queueing may be off by (C + 1)/12000 · (⅔·40 + ⅓·80).
    verdict = IdleCredit(tolerance_points=1).judge(two_then_three("cacb"))
    assert (verdict.status, verdict.n) == (FAILED, 300)
    assert verdict.measured == pytest.approx(50.0)
    in_service = verdict.details["phases"]["three, c"]["in_service"]
    assert verdict.bound == pytest.approx(100 / 3 + 100 * (in_service + 1) / 12_000 * (80 / 3 + 80 / 3))


def test_less_than_its_share_is_no_credit() -> None:
    assert IdleCredit().judge(two_then_three("ababababc")).status is PASSED


def test_weight_entitles_to_more() -> None:
    assert IdleCredit().judge(two_then_three("cacb")).status is FAILED
    assert IdleCredit().judge(two_then_three("cacb", weight=2)).status is PASSED, "2 of 4"


def test_only_the_window_counts() -> None:
    # 2.9 s of nothing but c, which is 145 of 300 calls; or of 500 in ten seconds.
    run = two_then_three("c" * 145 + "ab" * 178)
    assert IdleCredit().judge(run).status is FAILED
    assert IdleCredit(window_s=10).judge(run).status is PASSED


def test_a_handful_of_calls_decides_nothing() -> None:
    verdict = IdleCredit(window_s=0.3).judge(two_then_three("c" * 25, calls=25))
    assert verdict.status is INCONCLUSIVE
    assert "15 calls" in verdict.because


def test_who_returns_may_be_named() -> None:
    run = two_then_three("cacb")
    assert IdleCredit(tenants=("c",), phases=("three",)).judge(run).status is FAILED
    verdict = IdleCredit(tenants=("a",), phases=("three",)).judge(run)
    assert verdict.status is INCONCLUSIVE, "a did not come back: it was there all the time"


# --------------------------------------------------------------------------------- rebalance


def test_what_happens_before_within_is_forgiven() -> None:
    # For 1.9 s c gets nothing, then its third.
    late = "ab" * 47 + "abc" * 140
    assert Rebalance().judge(two_then_three(late)).status is PASSED
    verdict = Rebalance(within_s=0).judge(two_then_three(late))
    assert verdict.status is FAILED
    # Of 300 calls c got a third of the last 206.
    assert verdict.measured == pytest.approx(100 * (1 / 3 - 68 / 300), abs=0.4)
    assert "c joined at 5 s" in verdict.because


def test_a_tenant_that_left_leaves_its_share_to_the_others() -> None:
    tenants = {"a": 3.0, "b": 1.0, "c": 1.0}
    phases = {"three": 5.0, "two": 10.0}
    for turns, status in (("aaab", PASSED), ("ab", FAILED)):
        build = RunBuilder(profile(phases=phases, tenants=tenants, only={"c": ("three",)}))
        build.dispatches(islice(cycle("aaabc"), 250), every_ms=20)
        build.dispatches(islice(cycle(turns), 500), every_ms=20, start_ms=5_000)
        for tenant in "ab":
            build.ended(tenant, 5_000, Outcome.UNFINISHED, after_ms=10_000)
        verdict = Rebalance().judge(build.run())
        assert verdict.status is status
        assert "c left at 5 s" in verdict.because


def test_a_phase_too_short_says_so() -> None:
    verdict = Rebalance(phases=("three",)).judge(two_then_three("abc", calls=300, after_s=6.0))
    assert verdict.status is INCONCLUSIVE
    assert "'three' lasts 6 s" in verdict.because


def test_without_any_change_there_is_nothing_to_judge() -> None:
    run = RunBuilder(profile(phases={"one": 5.0, "two": 5.0})).run()
    assert "no recorded phase begins with other tenants" in Rebalance().judge(run).because


# --------------------------------------------------------------------------------- long-job


def mixed(
    *,
    short_ms: float = 50.0,
    long_ms: tuple[float, ...] = (5_000.0,) * 5,
    unanswered: Outcome | None = None,
    end_s: float = 40.0,
) -> Run:
    """100 short jobs in each phase; long ones, one a second, that take so long. One more may get nothing."""
    build = RunBuilder(
        profile(
            phases={"baseline": 10.0, "mixed": 10.0, "rest": end_s - 20},
            tenants={"short": 1.0, "long": 1.0},
            only={"short": ("baseline", "mixed"), "long": ("mixed",)},
        )
    )
    for k in range(100):
        build.answered("short", 90 * k)
        build.answered("short", 10_000 + 90 * k, service_ms=short_ms)
    for k, length in enumerate(long_ms):
        build.answered("long", 10_000 + 1_000 * k, wait_ms=500, service_ms=length)
    if unanswered is not None:
        build.ended("long", 10_000, unanswered, after_ms=1_000 * (end_s - 10))
    return build.run()


def test_both_sides_must_hold() -> None:
    check = LongJob(completes_within_s=6)
    assert check.judge(mixed()).status is PASSED
    slow = check.judge(mixed(short_ms=101))
    assert (slow.status, slow.measured, slow.unit) == (FAILED, pytest.approx(2.02), "×")
    assert "the short jobs' (short) p95" in slow.because
    late = check.judge(mixed(long_ms=(5_000, 5_000, 5_000, 5_501)))
    assert (late.status, late.measured, late.bound, late.unit) == (FAILED, pytest.approx(6.001), 6, "s")
    assert "1 of 4 long jobs" in late.because


def test_a_long_job_that_is_never_answered_is_late_once_it_had_its_time() -> None:
    check = LongJob(completes_within_s=6)
    never = check.judge(mixed(unanswered=Outcome.UNFINISHED))
    assert (never.status, never.censored) == (FAILED, True)
    assert check.judge(mixed(unanswered=Outcome.REJECTED, end_s=20.1)).status is FAILED, "it was refused"
    # Open for ten seconds when the run ended, and it may take twelve: nothing follows from it.
    patient = LongJob(completes_within_s=12)
    assert patient.judge(mixed(unanswered=Outcome.UNFINISHED, end_s=20.1)).status is PASSED


def test_three_long_jobs_are_needed_to_pass_and_one_to_fail() -> None:
    check = LongJob(completes_within_s=6)
    assert check.judge(mixed(long_ms=(5_000, 5_000))).status is INCONCLUSIVE
    assert check.judge(mixed(long_ms=(9_000,))).status is FAILED
    assert check.judge(mixed(long_ms=(5_000, 5_000), short_ms=500)).status is FAILED


def test_nobody_saturated_proves_nothing_of_short_jobs() -> None:
    run = mixed()
    for record, call in zip(run.records, run.ledger, strict=True):
        call.arrived_ns = record.sent_ns
    verdict = LongJob(completes_within_s=6).judge(run)
    assert verdict.status is INCONCLUSIVE
    assert "did not saturate" in verdict.because
