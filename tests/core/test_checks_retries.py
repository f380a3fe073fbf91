"""Retries, promises and recovery, by hand."""

from __future__ import annotations

import math

import pytest

from agentload.checks.recovery import Recovery
from agentload.checks.retry_after_honest import RetryAfterHonest
from agentload.checks.retry_after_spread import RetryAfterSpread, poisson_tail
from agentload.checks.retry_amplification import RetryAmplification
from agentload.checks.upstream_retry_after import UpstreamRetryAfter
from agentload.evidence.promises import promises
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.evidence.verdicts import status_of_share
from agentload.model import NS, CallEnding, Outcome, Run, Status

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("bad", "n", "status"),
    [(0, 0, PASSED), (5, 100, PASSED), (6, 100, INCONCLUSIVE), (13, 100, INCONCLUSIVE), (14, 100, FAILED)],
)
def test_more_than_a_share_fails_only_where_chance_does_not_explain_it(
    bad: int, n: int, status: Status
) -> None:
    # P(X ≥ 13 | 100, 0.05) = 0.0015, P(X ≥ 14) = 0.0005.
    assert status_of_share(bad, n, 0.05) is status


# --------------------------------------------------------------------------------- recovery


def disturbed(
    after: str, *, during: str = "r", before: str = "a", per_s: int = 20, after_s: float | None = None
) -> Run:
    """Ten seconds before and during; after it one letter a second: (a)nswered, (r)efused, (h)alf of each."""
    phases = {"baseline": 10.0, "flood": 10.0, "recovery": after_s or float(len(after))}
    build = RunBuilder(profile(phases=phases, tenants={"a": 1.0}))
    for second, kind in enumerate(before * 10 + during * 10 + after):
        for k in range(per_s):
            at_ms = 1_000 * second + 1_000 * k / per_s
            if kind == "a" or (kind == "h" and k % 2) or (kind == "n" and k % 10):
                build.answered("a", at_ms)
            else:
                build.refused("a", at_ms)
    return build.run()


@pytest.mark.parametrize(
    ("after", "took_s", "status"),
    [
        ("aaaaaaaaaaaa", 0.0, PASSED),
        ("rrrrraaaaaaa", 5.0, PASSED),
        ("rrrrrraaaaaa", 6.0, FAILED),
        ("rrnnnnnnnnnn", 2.0, PASSED),  # nine in ten is 90 %
        ("rrhaaaaaaaaa", 3.0, PASSED),
        ("arrrrraaaaaa", 6.0, FAILED),  # one good second does not make it good from there on
        ("aaaaahaaaaaaaaaa", 0.0, PASSED),  # nor one bad one later on: 97 % of all since
        ("rrrrrrrrrrrr", math.inf, FAILED),
        ("aaaaaaaahhhhh", math.inf, FAILED),  # it fell back again
    ],
)
def test_goodput_is_back_from_the_first_good_stretch_on(after: str, took_s: float, status: Status) -> None:
    verdict = Recovery().judge(disturbed(after))
    assert verdict.status is status
    assert verdict.measured == (None if math.isinf(took_s) else took_s)
    assert verdict.censored == math.isinf(took_s)


def test_the_baseline_is_the_measure() -> None:
    # Half of it answered before: a half is all that can be asked for, and 45 % is 90 % of it.
    verdict = Recovery(min_goodput=0.5).judge(disturbed("hhhhhhhhhhhh", before="h"))
    assert (verdict.status, verdict.details["level"]) == (PASSED, 0.25)
    verdict = Recovery().judge(disturbed("aaaaaaaaaaaa", before="h"))
    assert verdict.status is INCONCLUSIVE
    assert "before any disturbance" in verdict.because


def test_a_disturbance_that_nobody_noticed_proves_nothing() -> None:
    verdict = Recovery().judge(disturbed("aaaaaaaaaaaa", during="a"))
    assert verdict.status is INCONCLUSIVE
    assert "did not saturate" in verdict.because
    assert Recovery(disturbance="baseline").judge(disturbed("aaaaaaaaaaaa")).status is INCONCLUSIVE


def test_a_phase_shorter_than_the_bound_cannot_show_recovery() -> None:
    assert Recovery().judge(disturbed("aaaaa")).status is INCONCLUSIVE
    assert Recovery(within_s=4).judge(disturbed("aaaaa")).status is PASSED


def test_stretches_hold_twenty_requests() -> None:
    verdict = Recovery().judge(disturbed("aaaaaaaaaaaa", per_s=8))
    assert [one["n"] for one in verdict.details["goodput"]] == [20, 20, 20, 20, 16]


# --------------------------------------------------------------------------------- retry-amplification


def failing(*, client: int, own: int, requests: int = 20, calm: int = 0) -> Run:
    """In the outage each of a client's attempts reaches the provider `own` times; `calm` requests do once."""
    build = RunBuilder(profile(phases={"calm": 10.0, "outage": 10.0}, tenants={"a": 1.0}))
    for k in range(calm):
        build.answered("a", 9_000 * k / calm, seq=10_000 + k)
    for k in range(requests):
        for attempt in range(client):
            at_ms = 10_000 + 100 * k + 10 * attempt
            record = build.refused(
                "a", at_ms, status=502, seq=k, attempt=attempt, first_due_ms=10_000 + 100 * k
            )
            for _ in range(own):
                build.call(record, at_ms, at_ms, CallEnding.FAULTED, status=503)
    return build.run()


@pytest.mark.parametrize(
    ("client", "own", "measured", "unit", "status"),
    [
        (1, 1, 1.0, "calls per request", PASSED),
        (2, 1, 2.0, "calls per request", PASSED),
        (3, 1, 3.0, "calls per request", FAILED),
        (1, 2, 2.0, "calls per attempt", FAILED),
        (3, 3, 3.0, "calls per attempt", FAILED),  # ten times its room; nine per request, eight
    ],
)
def test_calls_by_cause(client: int, own: int, measured: float, unit: str, status: Status) -> None:
    verdict = RetryAmplification().judge(failing(client=client, own=own))
    assert (verdict.status, verdict.measured, verdict.unit) == (status, measured, unit)
    numbers = verdict.details["phases"]["outage"]
    assert numbers["client_retries"] == 20 * (client - 1)
    assert numbers["gateway_retries"] == 20 * client * (own - 1)


def test_calm_phases_do_not_water_an_outage_down() -> None:
    run = failing(client=1, own=2, calm=1_000)
    assert RetryAmplification().judge(run).measured == 2.0
    assert RetryAmplification(phases=("calm",)).judge(run).measured == 1.0


def test_nineteen_requests_are_too_few() -> None:
    assert RetryAmplification().judge(failing(client=3, own=3, requests=19)).status is INCONCLUSIVE


# --------------------------------------------------------------------------------- upstream-retry-after


def told(*arrivals_ms: float, early: bool = True, models: tuple[str, ...] = ("", "")) -> Run:
    """At 1 s a call is refused until 3 s; others come at these times. `models`: of the first, the others."""
    build = RunBuilder(profile(tenants={"a": 1.0}))
    first = build.call(build.refused("a", 1_000, status=503), 1_000, 1_000, CallEnding.FAULTED, status=503)
    first.not_before_ns, first.model = 3_000 * MS, models[0]
    for at_ms in arrivals_ms:
        build.answered("a", at_ms)
        build.ledger[-1].early = early and at_ms < 3_000
        build.ledger[-1].model = models[1]
    return build.run()


@pytest.mark.parametrize(
    ("run", "early"),
    [
        (told(3_000.0), 0),
        (told(1_100.0), 0),  # on its way
        (told(1_100.001), 1),
        (told(2_999.0, 2_000.0, 3_500.0), 2),
        (told(2_000.0, early=False), 0),  # another key's: the provider knows
        (told(2_000.0, models=("m", "n")), 0),  # another model's bucket
    ],
)
def test_calls_before_the_promised_instant(run: Run, early: int) -> None:
    verdict = UpstreamRetryAfter().judge(run)
    assert (verdict.measured, verdict.status) == (early, FAILED if early else PASSED)


def test_a_later_promise_replaces_a_shorter_one() -> None:
    run = told(4_000.0)
    again = RunBuilder(run.profile)
    again.ledger = run.ledger
    again.call(None, 1_050, 1_050, CallEnding.FAULTED, status=503).not_before_ns = 5_000 * MS
    run.ledger[1].early = True
    assert UpstreamRetryAfter().judge(run).measured == 1


# --------------------------------------------------------------------------------- promises


def test_promises_and_what_followed_them() -> None:
    build = RunBuilder(profile(phases={"load": 60.0}, tenants={"a": 1.0}))
    build.refused("a", 0, after_ms=0, retry_after="2", seq=1, final=False)
    build.answered("a", 2_000, seq=1, attempt=1, first_due_ms=0)
    build.refused("a", 10, after_ms=0, retry_after="8", seq=2, final=False)
    build.refused("a", 2_010, after_ms=0, retry_after="1", seq=2, attempt=1, first_due_ms=10)
    build.refused("a", 20, after_ms=0, retry_after="0", seq=3)
    build.refused("a", 30, after_ms=0, retry_after="3", seq=4, status=402)
    build.refused("a", 40, after_ms=0, retry_after=None, seq=5)
    found = promises(build.run())
    assert [(p.refusal.seq, p.wait_s, p.kept_to, p.served, p.waited_part) for p in found] == [
        (1, 2.0, True, True, 1.0),
        (2, 8.0, False, False, 0.25),
        (2, 1.0, False, False, None),
    ]
    assert found[1].due_ns == 8_010 * MS


# --------------------------------------------------------------------------------- retry-after-honest


def flood(
    *,
    refused: int = 100,
    unserved: int = 0,
    promise_s: float = 0.0,
    back_part: float = 1.0,
    ending: Outcome = Outcome.REJECTED,
) -> Run:
    """Ten calls a second, ten in the queue, and the k-th refused caller is told when its turn is (or
    `promise_s`). The last `unserved` are not served when they are back, after so much of their time."""
    build = RunBuilder(profile(phases={"flood": 5.0, "after": 55.0}, tenants={"a": 1.0}))
    for k in range(11):
        build.answered("a", 0, wait_ms=100 * k, service_ms=100)
    for k in range(refused):
        wait_s = promise_s or 1 + (k + 1) // 10
        seq, back_ms = 1_000 + k, 10 + 1_000 * wait_s * back_part
        build.refused("a", 9, after_ms=1, retry_after=f"{wait_s:g}", seq=seq, final=False)
        if k < refused - unserved:
            turn_ms = 100 * ((k + 1) % 10)
            build.answered("a", back_ms, seq=seq, attempt=1, first_due_ms=9, wait_ms=turn_ms, service_ms=100)
        else:
            record = build.ended("a", back_ms, ending, after_ms=10)
            record.seq, record.attempt, record.first_due_ns, record.phase = seq, 1, 9 * MS, "flood"
    return build.run()


def test_ninety_five_in_a_hundred_must_be_served_on_their_return() -> None:
    assert RetryAfterHonest().judge(flood()).status is PASSED
    verdict = RetryAfterHonest().judge(flood(unserved=5))
    assert (verdict.status, verdict.measured, verdict.n) == (PASSED, pytest.approx(5.0), 100)
    assert RetryAfterHonest().judge(flood(unserved=6)).status is INCONCLUSIVE
    verdict = RetryAfterHonest().judge(flood(unserved=14))
    assert (verdict.status, verdict.measured) == (FAILED, pytest.approx(14.0))
    assert "86 of 100" in verdict.because


def test_leaving_again_unserved_is_not_being_served() -> None:
    assert RetryAfterHonest().judge(flood(unserved=14, ending=Outcome.ABANDONED)).status is FAILED
    assert RetryAfterHonest().judge(flood(unserved=14, ending=Outcome.UNSENT)).n == 86


def test_only_those_who_waited_exactly_so_long_are_looked_at() -> None:
    run = flood(unserved=50, back_part=0.5)
    verdict = RetryAfterHonest().judge(run)
    assert verdict.status is INCONCLUSIVE
    assert "only 0 clients came back when" in verdict.because


def test_a_promise_may_be_twice_what_all_before_it_need_and_a_second() -> None:
    # The k-th refused (from 0) finds 10 in the queue and one in service, and k told before it; with itself
    # that is k + 12 calls at a little over ten a second: 1.2 s for the first, so 3.4 s at most.
    verdict = RetryAfterHonest().judge(flood())
    assert verdict.details["lengths"]["calls_per_s"] == pytest.approx(10, abs=1.5)
    long = RetryAfterHonest().judge(flood(promise_s=60.0))
    assert (long.status, long.unit) == (FAILED, "% too long")
    assert long.measured == pytest.approx(100.0)
    assert "such as 60 s" in long.because
    assert RetryAfterHonest(factor=400).judge(flood(promise_s=60.0)).status is PASSED


def test_a_provider_that_is_away_must_be_waited_for() -> None:
    run = flood(promise_s=30.0)
    assert RetryAfterHonest().judge(run).status is FAILED
    build = RunBuilder(run.profile)
    build.ledger = run.ledger
    build.call(None, 0, 0, CallEnding.FAULTED, status=503).not_before_ns = 20 * NS
    assert RetryAfterHonest().judge(run).status is PASSED


def test_a_quarter_is_tried_only_where_somebody_tries_it() -> None:
    early = flood(promise_s=8.0, back_part=0.25)
    verdict = RetryAfterHonest().judge(early)
    assert "not judged" in verdict.details["quarter"]
    check = RetryAfterHonest(quarter=("a",), factor=20)
    verdict = check.judge(early)
    assert (verdict.status, verdict.measured, verdict.unit) == (FAILED, 100.0, "% served early")
    assert check.judge(flood(promise_s=3.0, back_part=0.25)).status is INCONCLUSIVE, "shorter than 4 s"


# --------------------------------------------------------------------------------- retry-after-spread


def spread(waits_s: list[int], *, over_ms: float = 1_000.0) -> Run:
    """Refusals evenly over `over_ms`, each with its promise."""
    build = RunBuilder(profile(phases={"load": 60.0}, tenants={"a": 1.0}))
    for k, wait_s in enumerate(waits_s):
        build.refused("a", over_ms * k / len(waits_s), after_ms=0, retry_after=str(wait_s))
    return build.run()


def test_the_index_is_the_fullest_tenth_of_a_second_over_the_mean() -> None:
    # 400 over a second, all told 9 s: 40 in each 100 ms of the tenth second; somebody waits for ten seconds
    # (less the last 2.5 ms), 100 bins, so the mean is 4 and the index 10.
    verdict = RetryAfterSpread().judge(spread([9] * 400))
    assert (verdict.status, verdict.n) == (FAILED, 400)
    assert verdict.measured == pytest.approx(10.0, rel=0.001)
    # 4 s: 5 s of waiting, 50 bins, a mean of 8: an index of 5.
    verdict = RetryAfterSpread().judge(spread([4] * 400))
    assert (verdict.status, verdict.measured) == (PASSED, pytest.approx(5.0, rel=0.001))


def test_tickets_are_spread() -> None:
    verdict = RetryAfterSpread().judge(spread([1 + k % 9 for k in range(400)]))
    assert (verdict.status, verdict.measured) == (PASSED, pytest.approx(1.25, abs=0.25))


def test_below_two_hundred_chance_looks_like_a_herd() -> None:
    assert RetryAfterSpread().judge(spread([9] * 199)).status is INCONCLUSIVE
    assert RetryAfterSpread(min_promises=100).judge(spread([9] * 199)).status is FAILED


def test_a_thin_bin_is_not_held_against_anybody() -> None:
    # 200 promises over 200 s: a mean of 0.1 per bin, and one bin with 2.
    waits_s = [100] * 200
    waits_s[1] = 101  # with the one that was refused a second later
    run = spread(waits_s, over_ms=200_000)
    verdict = RetryAfterSpread().judge(run)
    assert verdict.measured is not None
    assert verdict.measured > 6
    assert verdict.status is INCONCLUSIVE
    assert "chance alone" in verdict.because


def test_the_tail_of_poisson_is_bounded_from_above() -> None:
    for mean, k in ((0.1, 2), (1.0, 5), (4.0, 12), (10.0, 25)):
        exact = 1 - sum(math.exp(-mean) * mean**i / math.factorial(i) for i in range(k))
        assert exact <= poisson_tail(k, mean) <= 1.5 * exact
