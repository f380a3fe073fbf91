"""The check `deadline`: late beginnings, late endings, and what it cannot know."""

from __future__ import annotations

import msgspec
import pytest

from agentload.checks.deadline import Deadline
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import Arrival, Job, Outcome, Run, Status


def run_of(build: RunBuilder, deadline_ms: float | None = 500) -> Run:
    """The built run, with a plan in which every request has that deadline."""
    deadline_ns = None if deadline_ms is None else round(deadline_ms * MS)
    job = Job(input_tokens=20, output_tokens=20, declared_output_tokens=20, deadline_ns=deadline_ns)
    arrivals = tuple(
        Arrival(seq=r.seq, tenant="a", service_class="standard", phase=r.phase, due_ns=r.due_ns, job=job)
        for r in build.records
    )
    run = build.run()
    run.plan = msgspec.structs.replace(run.plan, arrivals=arrivals)
    return run


def load(*, answered: int = 60, expired: int = 20) -> RunBuilder:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    for k in range(answered):
        build.answered("a", 100 * k, wait_ms=100)
    for k in range(expired):
        build.refused("a", 100 * k, status=504, retry_after=None, after_ms=400)
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
