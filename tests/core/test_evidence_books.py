"""Counters against witnesses: what travels, what nobody saw, and what can only be a lie."""

from __future__ import annotations

import msgspec
import pytest

from agentload.checks.observable import Observable
from agentload.evidence.books import Witnesses, category_of, unbalanced
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import Outcome, RequestRecord, Sample, Status

SLACK_NS = 250 * MS


def sample(at_ms: float, *, waiting: int = 0, in_flight: int = 0, **counts: float) -> Sample:
    names = [
        "offered",
        "refused",
        "admitted",
        "dispatched",
        "completed",
        "failed",
        "expired",
        "cancelled",
        "evicted",
    ]
    values = {f"counted.{name}": 0.0 for name in names}
    values |= {f"counted.{name.replace('__', '.')}": float(n) for name, n in counts.items()}
    values |= {"waiting": float(waiting), "in_flight": float(in_flight)}
    return Sample(at_ns=round(at_ms * MS), source="gateway", values=values)


WHOLE = sample(
    1,
    waiting=1,
    in_flight=1,
    offered=9,
    admitted=7,
    refused=2,
    refused__class_queue_full=2,
    completed=4,
    evicted=1,
)


def builder() -> RunBuilder:
    return RunBuilder(profile(phases={"load": 10.0}))


def refused(build: RunBuilder, at_ms: float, reason: str, status: int = 429) -> RequestRecord:
    record = build.refused("a", at_ms, status=status)
    record.reason = reason
    return record


def off(build: RunBuilder, last: Sample, first: Sample | None = None) -> int:
    witnesses = Witnesses(build.records, build.ledger, SLACK_NS)
    return witnesses.worst(first or sample(0), last).requests


def test_a_sample_that_adds_up() -> None:
    assert unbalanced(WHOLE).requests == 0


@pytest.mark.parametrize(
    ("changed", "by"),
    [
        ({"counted.offered": 10.0}, 1),
        ({"counted.evicted": 0.0}, 1),
        ({"waiting": 4.0}, 3),
        ({"counted.refused.class_queue_full": 0.0}, 2),
    ],
)
def test_a_sample_that_does_not(changed: dict[str, float], by: int) -> None:
    assert unbalanced(msgspec.structs.replace(WHOLE, values=WHOLE.values | changed)).requests == by


def test_an_answer_under_way_may_be_counted_or_not() -> None:
    build = builder()
    build.answered("a", 1_000)  # ends at 1,050
    for completed in (0, 1):
        assert off(build, sample(1_200, offered=1, admitted=1, dispatched=1, completed=completed)) <= 0
    assert off(build, sample(1_400, offered=1, admitted=1, dispatched=1)) == 1
    assert off(build, sample(1_400, offered=2, admitted=2, dispatched=1, completed=2)) == 1


def test_what_was_open_at_the_first_sample_is_not_held_against_the_later_ones() -> None:
    build = builder()
    build.answered("a", 0, wait_ms=2_000)
    first = sample(1_000, offered=1, admitted=1, waiting=1)
    assert off(build, sample(3_000, offered=1, admitted=1, dispatched=1, completed=1), first) <= 0


def test_a_refusal_must_be_counted_under_the_reason_that_was_told() -> None:
    build = builder()
    refused(build, 100, "tenant_queue_full")
    told = sample(1_000, offered=1, refused=1, refused__tenant_queue_full=1)
    other = sample(1_000, offered=1, refused=1, refused__class_queue_full=1)
    assert (off(build, told) <= 0, off(build, other)) == (True, 1)


def test_late_ones_are_compared_as_a_sum_because_one_word_has_two_counters() -> None:
    build = builder()
    refused(build, 100, "deadline_unmeetable", 504)
    refused(build, 200, "deadline_unmeetable", 504)
    assert (
        off(build, sample(1_000, offered=2, admitted=1, refused=1, refused__deadline_unmeetable=1, expired=1))
        <= 0
    )


def test_whoever_saw_no_answer_may_have_been_anything_but_only_once() -> None:
    build = builder()
    build.ended("a", 100, Outcome.ABANDONED)
    assert off(build, sample(2_000, offered=1, refused=1, refused__class_queue_full=1)) <= 0
    assert off(build, sample(2_000, offered=1, admitted=1, evicted=1)) <= 0
    assert off(build, sample(2_000, offered=1, admitted=1, evicted=1, completed=1)) == 1


def test_a_call_that_the_provider_saw_must_have_been_dispatched() -> None:
    build = builder()
    build.answered("a", 500)
    assert off(build, sample(2_000, offered=1, admitted=1, completed=1, dispatched=0)) == 1


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "category"),
    [
        (Outcome.ANSWERED, 200, "admitted", "completed"),
        (Outcome.FAILED, 502, "upstream_broken", "failed"),
        (Outcome.FAILED, 200, "admitted", "failed"),
        (Outcome.EXPIRED, 504, "deadline_exceeded", "failed"),
        (Outcome.EXPIRED, 504, "lease_expired", "failed"),
        (Outcome.EXPIRED, 504, "max_wait", "too late"),
        (Outcome.REJECTED, 429, "evicted", "evicted"),
        (Outcome.REJECTED, 402, "budget_spent", "budget_spent"),
        (Outcome.REJECTED, 503, "shutting_down", None),
        (Outcome.ABANDONED, 200, "admitted", None),
        (Outcome.FAILED, 0, "connection-reset", None),
    ],
)
def test_where_an_answer_must_be_counted(
    outcome: Outcome, status: int, reason: str, category: str | None
) -> None:
    record = builder().ended("a", 0, outcome, status=status)
    record.reason = reason
    assert category_of(record) == category


def test_a_gateway_that_was_started_anew_is_inconclusive_unless_it_contradicts_itself() -> None:
    check, run = Observable.example()
    again = [sample(9_000), sample(9_100), sample(9_200)]
    assert (
        check.judge(msgspec.structs.replace(run, samples=run.samples + again)).status is Status.INCONCLUSIVE
    )
    wrong = [sample(9_000, offered=3)]
    assert check.judge(msgspec.structs.replace(run, samples=run.samples + wrong)).status is Status.FAILED
