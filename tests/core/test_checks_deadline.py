"""The checks `deadline` and `nested-timeouts`: late, hopeless and silent endings."""

from __future__ import annotations

from typing import Any

import pytest

from agentload.checks.deadline import Deadline
from agentload.checks.nested_timeouts import NestedTimeouts
from agentload.evidence.synthetic import MS, RunBuilder, profile, with_deadlines
from agentload.model import CallEnding, Outcome, Run, Status


def run_of(build: RunBuilder, deadline_ms: float | None = 500) -> Run:
    """The built run, with a plan in which every request has that deadline."""
    return with_deadlines(build.run(), None if deadline_ms is None else round(deadline_ms * MS))


def load(*, answered: int = 60, expired: int = 20) -> RunBuilder:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(answered):
        build.answered("a", 100 * k, wait_ms=100)
    for k in range(expired):
        record = build.refused("a", 100 * k, status=504, retry_after=None, after_ms=400)
        record.reason = "deadline_unmeetable"
    return build


def test_one_late_beginning_is_too_many() -> None:
    build = load(answered=200)
    build.answered("a", 3_000, wait_ms=900)
    verdict = Deadline().judge(run_of(build))
    assert (verdict.status, verdict.measured, verdict.unit) == (Status.FAILED, 400.0, "ms late")


def test_a_beginning_within_the_grace_is_none() -> None:
    build = load()
    build.answered("a", 3_000, wait_ms=550, service_ms=10)
    assert Deadline().judge(run_of(build)).status is Status.PASSED


@pytest.mark.parametrize(
    ("late", "status"), [(0, Status.PASSED), (1, Status.INCONCLUSIVE), (9, Status.FAILED)]
)
def test_who_is_told_only_long_after_the_deadline_is_overdue(late: int, status: Status) -> None:
    build = load()
    for k in range(late):
        build.ended("a", 100 * k, Outcome.EXPIRED, after_ms=2_000, status=504)
    assert Deadline().judge(run_of(build)).status is status


def test_load_in_which_everybody_is_answered_puts_no_deadline_to_the_test() -> None:
    verdict = Deadline().judge(run_of(load(expired=0)))
    assert verdict.status is Status.INCONCLUSIVE
    assert "more load" in verdict.because


def test_requests_without_a_deadline_say_nothing() -> None:
    verdict = Deadline().judge(run_of(load(), deadline_ms=None))
    assert (verdict.status, verdict.n) == (Status.INCONCLUSIVE, 0)


@pytest.mark.parametrize(
    ("hopeless", "status"), [(1, Status.PASSED), (3, Status.INCONCLUSIVE), (12, Status.FAILED)]
)
def test_a_call_that_begins_with_less_time_than_calls_take_is_hopeless(hopeless: int, status: Status) -> None:
    """Calls take 50 ms; some begin with 30 ms left, and are cut off at the deadline."""
    build = load()
    for k in range(hopeless):
        record = build.ended("a", 100 * k, Outcome.EXPIRED, after_ms=500, status=504)
        build.call(record, 100 * k + 470, 100 * k + 500, CallEnding.CANCELLED)
    verdict = Deadline().judge(run_of(build))
    assert verdict.status is status
    assert verdict.details["begun_hopeless"] == hopeless


# --------------------------------------------------------------------------- nested-timeouts


def stalled(
    count: int = 40,
    *,
    outcome: Outcome = Outcome.EXPIRED,
    status: int = 504,
    reason: str | None = "deadline_exceeded",
    after_ms: float = 480,
    call_ms: float = 480,
) -> RunBuilder:
    """The load, and calls that never bring anything, closed and answered after so long."""
    build = load()
    for k in range(count):
        record = build.ended("a", 100 * k, outcome, after_ms=after_ms, status=status)
        record.reason = reason
        build.call(record, 100 * k + 1, 100 * k + call_ms, CallEnding.CANCELLED)
    return build


def nested(build: RunBuilder) -> tuple[Status, str]:
    verdict = NestedTimeouts().judge(run_of(build))
    return verdict.status, verdict.because


def test_what_the_gateway_ends_in_time_and_by_name_passes() -> None:
    status, because = nested(stalled())
    assert status is Status.PASSED
    assert "40 × 504 deadline_exceeded" in because


def test_an_error_event_in_a_stream_is_a_name_too() -> None:
    status, because = nested(stalled(outcome=Outcome.FAILED, status=200))
    assert status is Status.PASSED
    assert "200 deadline_exceeded" in because


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"outcome": Outcome.ABANDONED, "status": 0, "reason": "timeout", "after_ms": 750}, "own timeout"),
        ({"outcome": Outcome.UNFINISHED, "status": 0, "reason": None, "after_ms": 5_000}, "own timeout"),
        ({"outcome": Outcome.FAILED, "status": 500, "reason": "internal_error"}, "without a name"),
        ({"outcome": Outcome.TRUNCATED, "status": 200, "reason": "admitted"}, "without a name"),
        ({"outcome": Outcome.FAILED, "status": 0, "reason": "connection-reset"}, "without a name"),
        ({"reason": None}, "without a name"),
        ({"call_ms": 5_000}, "open at the provider"),
    ],
)
def test_an_outer_layer_first_or_an_ending_without_a_name_fails(wrong: dict[str, Any], said: str) -> None:
    status, because = nested(stalled(**wrong))
    assert status is Status.FAILED
    assert said in because


def test_a_client_that_leaves_before_its_deadline_says_nothing() -> None:
    gone = stalled(outcome=Outcome.ABANDONED, status=0, reason="timeout", after_ms=400)
    status, because = nested(gone)
    assert status is Status.INCONCLUSIVE
    assert "more patient than their deadlines" in because


def test_refusals_at_once_are_not_endings_by_time() -> None:
    build = stalled()
    for k in range(400):
        build.refused("a", 10 * k, status=504, retry_after=None)
    assert NestedTimeouts().judge(run_of(build)).n == 60, "40 stalled ones, and 20 that waited 400 ms"
