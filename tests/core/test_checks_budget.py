"""The checks of budgets and of retries, at their edges."""

from __future__ import annotations

from agentload.checks.budget import Budget
from agentload.checks.retry_identity import RetryIdentity
from agentload.checks.status_codes import StatusCodes
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.model import CallEnding, Outcome, Run, Spec, Status


def spending(
    *, answered: int, refused: int = 0, status: int = 402, retry_after: str | None = None
) -> RunBuilder:
    """Calls of 40 tokens, one after another, then refusals."""
    build = RunBuilder(profile(tenants={"a": 1.0, "b": 1.0}))
    for k in range(answered):
        build.answered("a", 100 * k).run = "loop"
    for k in range(refused):
        at_ms = 100 * (answered + k) + 400
        build.refused("a", at_ms, status=status, retry_after=retry_after).run = "loop"
    return build


def test_one_job_over_the_budget_is_allowed_and_two_are_not() -> None:
    check = Budget(tokens=1_000)
    assert check.judge(spending(answered=26, refused=1).run()).status is Status.PASSED
    verdict = check.judge(spending(answered=27, refused=1).run())
    assert (verdict.status, verdict.measured, verdict.bound) == (Status.FAILED, 1_080, 1_040)


def test_a_run_is_an_account_of_its_own_and_calls_can_be_counted() -> None:
    build = spending(answered=30)
    assert Budget(tokens=1_000, of="run").judge(build.run()).status is Status.FAILED
    assert Budget(calls=25, of="everybody").judge(build.run()).status is Status.FAILED
    for record in build.records:
        record.run = f"loop-{record.seq % 2}"
    assert Budget(tokens=1_000, of="run").judge(build.run()).status is Status.INCONCLUSIVE


def test_failed_and_abandoned_calls_are_spent_too() -> None:
    build = spending(answered=20)
    for k in range(8):
        gone = build.ended("a", 3_000 + 100 * k, Outcome.ABANDONED, after_ms=50)
        build.call(gone, 3_000 + 100 * k, 3_050 + 100 * k, CallEnding.CANCELLED)
    assert Budget(tokens=1_000).judge(build.run()).measured == 1_120


def test_whoever_has_spent_it_is_not_invited_back() -> None:
    check = Budget(tokens=1_000)
    for status, retry_after in ((429, "1"), (503, None), (402, "5")):
        verdict = check.judge(spending(answered=25, refused=9, status=status, retry_after=retry_after).run())
        assert (verdict.status, verdict.measured, verdict.unit) == (Status.FAILED, 9, "invitations")
    early = spending(answered=24, refused=3, status=429, retry_after="1")
    assert check.judge(early.run()).status is Status.INCONCLUSIVE, "a whole job was left"


def test_refusing_while_much_is_left_keeps_no_budget() -> None:
    verdict = Budget(tokens=2_000).judge(spending(answered=25, refused=9).run())
    assert (verdict.status, verdict.measured, verdict.bound) == (Status.FAILED, 1_000, 1_600)


def test_without_a_budget_there_is_nothing_to_judge() -> None:
    assert Budget().judge(spending(answered=30).run()).status is Status.INCONCLUSIVE


# --------------------------------------------------------------------------- retry-identity


def stubborn(requests: int, attempts: int, *, reach: bool, status: int = 502) -> RunBuilder:
    """Requests that are tried again and again, half a second apart."""
    of = profile(tenants={"a": 1.0}, phases={"load": 600.0})
    client = Spec(kind="forgetful")
    named = of.model_copy(update={"tenants": (of.tenants[0].model_copy(update={"client": client}),)})
    build = RunBuilder(named)
    for k in range(requests):
        first = None
        for attempt in range(attempts):
            at_ms = 10_000 * k + 500 * attempt
            seq = None if first is None else first.seq
            refused = build.refused(
                "a", at_ms, status=status, retry_after=None, seq=seq, attempt=attempt, first_due_ms=10_000 * k
            )
            first = first or refused
            if reach or attempt < 6:
                build.call(refused, at_ms, at_ms + 1, CallEnding.FAULTED)
    return build


def test_what_has_had_its_attempts_must_not_reach_the_provider() -> None:
    check = RetryIdentity(only=("exhausted",))
    assert check.judge(stubborn(5, 12, reach=False, status=400).run()).status is Status.PASSED
    verdict = check.judge(stubborn(5, 12, reach=True).run())
    assert (verdict.status, verdict.measured) == (Status.FAILED, 30)
    assert check.judge(stubborn(5, 12, reach=False, status=429).run()).status is Status.FAILED, "invited back"
    assert (
        RetryIdentity(only=("exhausted",), max_attempts=12).judge(stubborn(5, 12, reach=True).run()).status
        is Status.INCONCLUSIVE
    )


def test_clients_that_send_no_key_are_left_out() -> None:
    build = stubborn(5, 12, reach=True)
    anonymous = build.profile.tenants[0].model_copy(update={"client": Spec(kind="ignores")})
    run: Run = build.run()
    run.profile = run.profile.model_copy(update={"tenants": (anonymous,)})
    assert RetryIdentity(only=("exhausted",)).judge(run).status is Status.INCONCLUSIVE


def test_an_early_retry_must_not_put_the_promise_off() -> None:
    check, run = RetryIdentity.example()
    for record in run.records:
        if record.attempt:
            record.retry_after, record.retry_after_s = "9", 9.0
    assert check.judge(run).status is Status.FAILED


def test_a_last_attempts_400_is_no_refusal_in_disguise() -> None:
    build = stubborn(5, 12, reach=False, status=400)
    for record in build.records:
        if record.attempt < 6:
            record.status = 502
    build.answered("a", 599_000)
    assert StatusCodes().judge(build.run()).status is Status.PASSED
    build.records[0].status = 400
    assert StatusCodes().judge(build.run()).status is Status.FAILED
