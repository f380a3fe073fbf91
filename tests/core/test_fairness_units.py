"""Shares are measured in what the gateway divides: tokens, seconds in service, or calls.

Two equal tenants, one call after another: a's take 40 ms for 20 tokens, b's take 10 ms for 80. So one of
each is fair in calls, one of a's to four of b's in seconds, and four to one in tokens.
"""

from __future__ import annotations

from itertools import cycle, islice

import msgspec
import pytest

from agentload.checks import Check
from agentload.checks.estimate_drift import EstimateDrift
from agentload.checks.idle_credit import IdleCredit
from agentload.checks.rebalance import Rebalance
from agentload.checks.service_gap import ServiceGap
from agentload.checks.weighted_share import WeightedShare
from agentload.evidence.contest import contests
from agentload.evidence.fairness import services, work_of
from agentload.evidence.synthetic import MS, RunBuilder, profile
from agentload.model import CallEnding, Outcome, Run, Status
from agentload.promises import Promises, ShareUnit, Truth

PASSED, FAILED = Status.PASSED, Status.FAILED
SERVICE_MS = {"a": 40, "b": 10}
TOKENS = {"a": 20, "b": 80}
FAIR: dict[ShareUnit, str] = {"tokens": "aaaab", "seconds": "abbbb", "requests": "ab"}
"""Unit → the turns in which it is shared equally."""
UNITS: tuple[ShareUnit, ...] = ("tokens", "seconds", "requests")
BEFORE_S, BOTH_S = 4, 10


def run_with(turns: str, unit: ShareUnit) -> Run:
    """From `BEFORE_S` on both have work waiting all the time, and b has only come then."""
    phases = {"before": float(BEFORE_S), "both": float(BOTH_S)}
    build = RunBuilder(profile(phases=phases, tenants={"a": 1.0, "b": 1.0}, only={"b": ("both",)}))
    at_ms = 0.0
    while at_ms < 1_000 * BEFORE_S:
        at_ms = served(build, "a", at_ms)
    for tenant in islice(cycle(turns), 10_000):
        if at_ms >= 1_000 * (BEFORE_S + BOTH_S):
            break
        at_ms = served(build, tenant, at_ms)
    for tenant, since_ms in (("a", 0), ("b", 1_000 * BEFORE_S)):
        until_ms = 1_000 * (BEFORE_S + BOTH_S)
        record = build.ended(tenant, since_ms, Outcome.UNFINISHED, after_ms=until_ms - since_ms)
        record.sent_ns -= 20 * MS
    promises = Promises(known=frozenset({Truth.WEIGHTS}), fairness=unit)
    return msgspec.structs.replace(build.run(), promises=promises)


def served(build: RunBuilder, tenant: str, at_ms: float) -> float:
    build.answered(
        tenant, at_ms - 15, wait_ms=15, service_ms=SERVICE_MS[tenant], input_tokens=TOKENS[tenant] // 2,
        output_tokens=TOKENS[tenant] // 2,
    )  # fmt: skip
    return at_ms + SERVICE_MS[tenant]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shared_in", UNITS)
@pytest.mark.parametrize(
    "check",
    [
        WeightedShare(phases=("both",)),
        ServiceGap(phases=("both",)),
        EstimateDrift(phases=("both",)),
        Rebalance(phases=("both",)),
    ],
    ids=lambda check: type(check).__name__,
)
def test_it_passes_in_the_unit_that_is_shared_and_fails_in_every_other(
    check: Check, unit: ShareUnit, shared_in: ShareUnit
) -> None:
    verdict = check.judge(run_with(FAIR[shared_in], unit))
    assert verdict.status is (PASSED if unit == shared_in else FAILED), verdict.because


@pytest.mark.parametrize(("unit", "status"), [("seconds", PASSED), ("tokens", FAILED), ("requests", FAILED)])
def test_who_returns_gets_its_share_of_what_is_divided(unit: ShareUnit, status: Status) -> None:
    verdict = IdleCredit(phases=("both",)).judge(run_with(FAIR["seconds"], unit))
    assert verdict.status is status, verdict.because


@pytest.mark.parametrize(
    ("unit", "words"),
    [("tokens", "of the work"), ("seconds", "of the time in service"), ("requests", "of the calls")],
)
def test_the_unit_is_said(unit: ShareUnit, words: str) -> None:
    run = run_with(FAIR[unit], unit)
    assert words in WeightedShare(phases=("both",)).judge(run).because
    gap = ServiceGap(phases=("both",)).judge(run)
    assert gap.unit == {"requests": "calls"}.get(unit, unit) + " per weight"


def test_a_checks_own_parameter_goes_before_what_is_declared() -> None:
    run = run_with(FAIR["requests"], "tokens")
    assert WeightedShare(phases=("both",)).judge(run).status is FAILED
    assert WeightedShare(phases=("both",), work="requests").judge(run).status is PASSED


def test_a_call_that_is_still_open_has_taken_until_the_last_that_is_known() -> None:
    build = RunBuilder(profile(tenants={"a": 1.0}))
    record = build.ended("a", 0, Outcome.UNFINISHED, after_ms=900)
    call = build.call(record, 100, 900, CallEnding.OPEN)
    call.ended_ns = None
    build.answered("a", 200, service_ms=600)
    assert [service.work for service in services(build.run().ledger, "seconds")] == pytest.approx([0.7, 0.6])
    call.started_ns = None
    assert work_of(call, "seconds") == 0


def test_who_was_never_served_would_have_cost_what_its_tokens_cost_others() -> None:
    run = run_with("a", "seconds")
    for record in run.records:
        if record.tenant == "b":
            record.input_tokens = record.planned_output_tokens = 50
    [contest], _ = contests(run, (), ("both",), "seconds")
    assert contest.costs == pytest.approx({"a": 0.04, "b": 0.2})  # 2 ms a token, at the dearest
    assert WeightedShare(phases=("both",)).judge(run).status is FAILED
