"""What single checks make of a promise that is there, in part, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentload import profile as profiles
from agentload.checks.bounded_queue import BoundedQueue
from agentload.checks.budget import Budget
from agentload.checks.class_borrow import ClassBorrow
from agentload.checks.concurrency_cap import ConcurrencyCap
from agentload.checks.provider_limit import ProviderLimit
from agentload.checks.retry_after_honest import RetryAfterHonest
from agentload.checks.retry_after_present import RetryAfterPresent
from agentload.checks.retry_after_spread import RetryAfterSpread
from agentload.checks.retry_after_syntax import RetryAfterSyntax
from agentload.checks.retry_identity import RetryIdentity
from agentload.checks.status_codes import StatusCodes
from agentload.checks.tenant_limit import TenantLimit
from agentload.checks.work_conserving import WorkConserving
from agentload.evidence.class_scene import ClassScene
from agentload.evidence.synthetic import RunBuilder, profile
from agentload.evidence.verdicts import MOOT, percent_of
from agentload.explain import explain
from agentload.model import Outcome, Run, Status
from agentload.promises import Truth
from agentload.targets._declares import as_declared
from fake_provider.config import ModelLimits, ProviderConfig

PASSED, FAILED, INCONCLUSIVE = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


def of(run: Run, **section: Any) -> Run:
    """The run, as that of a target that declares so much."""
    target = {"host": "127.0.0.1", "name": "gateway.yaml", "declares": section}
    judged, promises = as_declared(run.profile, target)
    return msgspec.structs.replace(run, profile=judged, promises=promises)


def calls(every_ms: float, *, tenants: str = "a", count: int = 40, **service: Any) -> Run:
    names = dict.fromkeys(sorted(set(tenants)), 1.0)
    build = RunBuilder(profile(phases={"load": every_ms * count / 1_000}, tenants=names))
    for k in range(count):
        build.answered(tenants[k % len(tenants)], every_ms * k, **service)
    return build.run()


# --------------------------------------------------------------------------- queues


def test_without_a_bound_growth_and_age_are_judged_and_it_says_so() -> None:
    check, run = BoundedQueue.example()
    verdict = BoundedQueue().judge(of(run))
    assert (verdict.status, verdict.bound, verdict.unit) == (PASSED, 30, "s")
    assert "declares no bound (declares.queue.requests)" in verdict.because
    assert check.judge(of(run)).unit == "requests"


def test_what_is_added_to_a_promised_age_is_said_and_nothing_where_nothing_is() -> None:
    added = "; its bound is 5 s (and 0.5 s for the answer)"
    passed = BoundedQueue().judge(of(BoundedQueue.example()[1], queue={"age_s": 5}))
    assert (passed.status, passed.bound) == (PASSED, 5.5)
    assert passed.because.endswith(added)
    old = of(calls(100, wait_ms=6_000), queue={"age_s": 5})
    failed = BoundedQueue().judge(old)
    assert (failed.status, failed.bound) == (FAILED, 5.5)
    assert failed.because.endswith(added)
    assert "for the answer" not in BoundedQueue(max_age_s=5.5).judge(old).because
    assert "for the answer" not in BoundedQueue().judge(of(calls(100, wait_ms=31_000))).because


def test_without_a_bound_a_queue_that_grows_decides_nothing_and_one_that_is_old_fails() -> None:
    _, growing = BoundedQueue.counterexample()
    verdict = BoundedQueue().judge(of(growing))
    assert (verdict.status, verdict.bound) == (INCONCLUSIVE, None)
    assert "declares.queue.requests" in verdict.because
    old = calls(100, wait_ms=31_000)
    verdict = BoundedQueue().judge(of(old))
    assert (verdict.status, verdict.bound, verdict.measured) == (FAILED, 30, 31)


@pytest.mark.parametrize(
    ("queue", "status", "unit"),
    [
        ({"requests": 50, "age_s": 5}, PASSED, "requests"),
        ({"requests": 10}, FAILED, "requests"),
        ({"age_s": 0.4}, FAILED, "s"),
    ],
)
def test_a_declared_bound_is_the_bound(queue: dict[str, Any], status: Status, unit: str) -> None:
    verdict = BoundedQueue().judge(of(BoundedQueue.example()[1], queue=queue))
    assert (verdict.status, verdict.unit) == (status, unit), verdict.because


def test_a_generator_that_was_stopped_by_held_requests_needs_no_declared_bound() -> None:
    _, run = BoundedQueue.counterexample()
    run.health.capped, run.health.in_flight_cap = 5, 120
    verdict = BoundedQueue().judge(of(run))
    assert (verdict.status, verdict.bound) == (FAILED, 60)


# --------------------------------------------------------------------------- caps and limits


def test_a_cap_is_judged_as_far_as_it_is_declared() -> None:
    run = calls(20, tenants="ab", service_ms=100)  # five at once, three of a's
    whole = ConcurrencyCap().judge(of(run, slots=5, tenant_slots=3))
    assert (whole.status, "not judged" in whole.because) == (PASSED, False)
    total = ConcurrencyCap().judge(of(run, slots=5))
    assert total.status is PASSED
    assert "single tenants are not judged" in total.because
    one = ConcurrencyCap().judge(of(run, tenants={"a": {"slots": 2}}))
    assert (one.status, one.bound, one.measured) == (FAILED, 2, 3)
    assert "all tenants together are not judged" in one.because


def test_limits_are_those_that_the_gateway_was_told_for_each_tenant() -> None:
    run = calls(250, tenants="ab", count=80)  # two a second of each
    even = {"requests_per_minute": 120, "burst_s": 1}
    assert TenantLimit().judge(of(run, each_tenant=even)).status is PASSED
    verdict = TenantLimit().judge(of(run, each_tenant=even, tenants={"b": {"requests_per_minute": 60}}))
    assert (verdict.status, verdict.because.split()[0]) == (FAILED, "b")
    assert TenantLimit(tenants=("a",)).judge(of(run, tenants={"b": even})).status is INCONCLUSIVE


def test_of_two_limits_the_tighter_one_says_what_is_due() -> None:
    run = calls(500)  # two a second, 40 tokens each
    roomy = {"requests_per_minute": 6_000, "tokens_per_minute": 4_800, "burst_s": 1}
    verdict = TenantLimit().judge(of(run, each_tenant=roomy))
    assert verdict.status is PASSED
    assert set(verdict.details["tenants"]) == {"a, requests", "a, tokens"}
    tight = TenantLimit().judge(of(run, each_tenant=roomy | {"tokens_per_minute": 2_400}))
    assert (tight.status, tight.unit) == (FAILED, "tokens")


def test_a_tenant_is_due_its_limit_only_while_it_is_there() -> None:
    """A flood of the second of two phases may have half of what its rate allows in both."""
    told = profile(phases={"calm": 10.0, "flood": 10.0}, tenants={"a": 1.0}, only={"a": ("flood",)})
    build = RunBuilder(told)
    for k in range(40):
        build.answered("a", 10_000 + 250 * k)
        build.refused("a", 10_000 + 250 * k)
    run = of(build.run(), each_tenant={"requests_per_minute": 240, "burst_s": 1})
    assert TenantLimit().judge(run).status is PASSED


@pytest.mark.parametrize(
    ("section", "status"),
    [
        ({"budgets": {"tenant": {"tokens": 1_000}}}, PASSED),
        ({"budgets": {"tenant": {"tokens": 500}}}, FAILED),
        ({"tenants": {"a": {"budget": {"calls": 25}}}}, PASSED),
        ({"tenants": {"a": {"budget": {"calls": 10}}}}, FAILED),
        ({"budgets": {"tenant": {"tokens": 1_000, "per": "hour"}}}, INCONCLUSIVE),
        ({"budgets": {"tenant": {"tokens": 1_000, "calls": 25}}}, INCONCLUSIVE),
        ({"budgets": {"run": {"tokens": 1_000}}}, INCONCLUSIVE),
    ],
)
def test_a_budget_is_the_one_that_the_gateway_was_told(section: dict[str, Any], status: Status) -> None:
    _, run = Budget.example()  # 25 calls of 40 tokens, then 402
    assert Budget().judge(of(run, **section)).status is status


@pytest.mark.parametrize(
    ("classes", "status"),
    [
        ({"low": {"nominal_share": 0.2, "borrows": 1.8}, "high": {"nominal_share": 0.8}}, PASSED),
        ({"low": {"nominal_share": 0.2, "borrows": 0.5}, "high": {"nominal_share": 0.8}}, FAILED),
        ({"low": {"nominal_share": 0.2}, "high": {"nominal_share": 0.8}}, FAILED),
        ({"low": {"nominal_share": 0.2}, "high": {"nominal_share": 0.8, "min_units": 45}}, PASSED),
        ({"high": {"nominal_share": 0.8}}, INCONCLUSIVE),
    ],
)
def test_how_much_may_be_borrowed_follows_from_the_classes(classes: dict[str, Any], status: Status) -> None:
    """Eight of sixteen slots are used."""
    scene = ClassScene({"high": "high", "low": "low"}, slots=16, phases={"alone": 8.0})
    scene.backlog("low", 0, 8_000, slots=8, service_ms=500)
    run = of(scene.build.run(), slots=16, classes=classes)
    assert ClassBorrow(classes=("low",)).judge(run).status is status


def test_a_tenants_cap_bounds_what_its_class_can_borrow() -> None:
    scene = ClassScene({"high": "high", "low": "low"}, slots=16, phases={"alone": 8.0})
    scene.backlog("low", 0, 8_000, slots=8, service_ms=500)
    classes = {"low": {"nominal_share": 0.2}, "high": {"nominal_share": 0.8}}
    run = of(scene.build.run(), slots=16, tenant_slots=8, classes=classes)
    assert ClassBorrow(classes=("low",)).judge(run).status is PASSED


# --------------------------------------------------------------------------- the provider's side


def idle(**service: Any) -> Run:
    """Two slots, of which one is used while two tenants of different classes wait."""
    told = profile(
        phases={"load": 6.0},
        tenants={"a": 1.0, "b": 1.0},
        classes={"a": "low", "b": "low"},
        provider=ProviderConfig(slots=2),
    )
    build = RunBuilder(told)
    for k in range(60):
        build.answered("ab"[k % 2], 100 * k - 300, wait_ms=300, service_ms=100, **service)
    for name in "ab":
        build.ended(name, 0, Outcome.UNFINISHED, after_ms=6_000)
    return build.run()


@pytest.mark.parametrize(
    ("section", "status"),
    [
        ({}, INCONCLUSIVE),
        ({"slots": 2, "tenant_slots": 2}, INCONCLUSIVE),
        ({"slots": 1}, PASSED),
        (
            {"slots": 2, "classes": {"low": {"nominal_share": 0.5}, "high": {"nominal_share": 0.5}}},
            INCONCLUSIVE,
        ),
    ],
)
def test_idleness_decides_only_where_all_rules_are_known(section: dict[str, Any], status: Status) -> None:
    verdict = WorkConserving().judge(of(idle(), **section))
    assert verdict.status is status, verdict.because
    assert status is not INCONCLUSIVE or "or `declares: profile`" in verdict.because


ALL_RULES: dict[str, Any] = {
    "slots": 2,
    "tenant_slots": 2,
    "upstream": {"requests_per_minute": 60_000, "bucket_s": 1},
}


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [
        ({"nominal_share": 0.5}, {"nominal_share": 0.5}, FAILED),
        ({"nominal_share": 0.5}, {"nominal_share": 0.5, "min_units": 50}, PASSED),
        (
            {"nominal_share": 0.5, "borrows": False},
            {"nominal_share": 0.5},
            INCONCLUSIVE,
        ),  # nothing is eligible
    ],
    ids=["nothing is kept", "a floor is kept", "it may not borrow"],
)
def test_slots_that_are_kept_for_others_are_not_idle(
    low: dict[str, Any], high: dict[str, Any], status: Status
) -> None:
    run = of(idle(), **ALL_RULES, classes={"low": low, "high": high})
    assert WorkConserving().judge(run).status is status


@pytest.mark.parametrize(("headroom", "status"), [(0.0, FAILED), (0.5, PASSED)])
def test_headroom_is_not_idle(headroom: float, status: Status) -> None:
    pool = {
        "slots": 2,
        "tenant_slots": 2,
        "headroom": headroom,
        "classes": {"low": {"nominal_share": 0.5}, "high": {"nominal_share": 0.5}},
    }
    run = of(idle(), pools={"shared": pool}, upstream=ALL_RULES["upstream"])
    assert WorkConserving().judge(run).status is status


def test_a_pool_that_is_full_leaves_another_ones_slots_alone() -> None:
    pools = {
        "shared": {"slots": 1, "tenant_slots": 1, "classes": {"low": {}}},
        "own": {"slots": 1, "tenant_slots": 1, "classes": {"high": {}}},
    }
    assert WorkConserving().judge(of(idle(), pools=pools, upstream=ALL_RULES["upstream"])).status is PASSED


def test_a_lower_limit_that_the_gateway_keeps_is_no_idleness_and_is_held_against_it() -> None:
    one_call_in_100_ms = {"tokens_per_minute": 24_000, "bucket_s": 0.1}
    classes = {"low": {"nominal_share": 1.0}}
    rules = ALL_RULES | {"classes": classes}
    assert WorkConserving().judge(of(idle(), **rules)).status is FAILED
    assert WorkConserving().judge(of(idle(), **rules | {"upstream": one_call_in_100_ms})).status is PASSED
    assert ProviderLimit().judge(of(idle(), upstream=one_call_in_100_ms)).status is PASSED
    tighter = {"tokens_per_minute": 12_000, "bucket_s": 0.1}
    verdict = ProviderLimit().judge(of(idle(), upstream=tighter))
    assert (verdict.status, verdict.unit) == (FAILED, "tokens")
    assert ProviderLimit().judge(of(idle())).status is PASSED


def test_each_model_has_its_own_limit() -> None:
    """40 tokens every second are within 2,400 a minute, and twice what 1,200 allow."""
    limits = {"small": ModelLimits(tokens_per_minute=1_200)}
    config = ProviderConfig(tokens_per_minute=2_400, bucket_s=2, model_limits=limits)
    build = RunBuilder(profile(phases={"load": 40.0}, provider=config))
    for k in range(40):
        build.answered("a", 1_000 * k)
    run = build.run()
    assert ProviderLimit().judge(run).status is PASSED
    for call in run.ledger:
        call.model = "small"
    verdict = ProviderLimit().judge(run)
    assert verdict.status is FAILED
    assert verdict.details["envelopes"][0]["model"] == "small"
    unlimited = config.model_copy(update={"model_limits": {"small": ModelLimits()}})
    free = run.profile.model_copy(update={"provider": unlimited})
    assert ProviderLimit().judge(msgspec.structs.replace(run, profile=free)).status is INCONCLUSIVE


@pytest.mark.parametrize(
    ("provider", "tokens", "models"),
    [
        ("tokens_per_minute: 600", 600, {}),
        ("policy: anthropic\n  input_tokens_per_minute: 500\n  output_tokens_per_minute: 90", 500, {}),
        ("tokens_per_minute: 600\n  model_limits: {small: {tokens_per_minute: 60}}", 600, {"small": 60}),
    ],
)
def test_the_gateway_is_told_the_providers_limits(
    provider: str, tokens: float, models: dict[str, float]
) -> None:
    text = profiles.find("steady").read_text().replace("tokens_per_minute: 153600", provider)
    upstream = profiles.parse(text, "steady.yaml").gateway.upstream
    assert upstream.tokens_per_minute == tokens
    assert {name: one.tokens_per_minute for name, one in upstream.models.items()} == models


# --------------------------------------------------------------------------- refusals and retries


def test_a_bare_refusal_fails_although_it_was_announced() -> None:
    check, run = RetryAfterPresent.counterexample()
    verdict = check.judge(of(run, retry_after=False))
    assert verdict.status is FAILED
    assert verdict.because.endswith("as the target declares: `severity: should` where that is accepted")
    assert "declares" not in check.judge(of(run)).because


@pytest.mark.parametrize("check", [RetryAfterSyntax(), RetryAfterSpread(), RetryAfterHonest()])
def test_where_nobody_is_told_anything_as_announced_there_is_nothing_to_judge(check: Any) -> None:
    _, run = RetryAfterSyntax.too_few()
    verdict = check.judge(of(run, retry_after=False))
    assert verdict.status is INCONCLUSIVE
    assert "as the target declares" in verdict.because
    assert verdict.details == {MOOT: True}
    assert MOOT not in check.judge(of(run)).details, "more load would show some"


def test_what_can_never_be_served_is_known_only_where_it_is_declared() -> None:
    build = RunBuilder(profile())
    for k in range(30):
        build.answered("a", 100 * k)
    wide = build.refused("b", 1_000, status=503)
    wide.input_tokens, wide.declared_output_tokens = 24, 8_000
    check, run = StatusCodes(impossible_tokens=7_000), build.run()
    assert check.judge(run).status is FAILED
    assert check.judge(of(run)).status is PASSED
    assert check.judge(of(run, max_request_tokens=6_000)).status is FAILED
    assert check.judge(of(run, max_request_tokens=9_000)).status is PASSED
    assert StatusCodes().judge(of(run, max_request_tokens=6_000)).status is FAILED


@pytest.mark.parametrize(
    ("attempt", "declared", "status"),
    [(0, {}, FAILED), (1, {}, PASSED), (1, {"max_attempts": 4}, FAILED), (4, {"max_attempts": 4}, PASSED)],
)
def test_a_400_for_a_retry_may_be_the_last_word_where_nobody_says_how_many_there_are(
    attempt: int, declared: dict[str, Any], status: Status
) -> None:
    build = RunBuilder(profile())
    for k in range(30):
        build.answered("a", 100 * k)
    build.refused("a", 1_000, status=400, attempt=attempt)
    assert StatusCodes().judge(of(build.run(), **declared)).status is status


def test_only_what_is_promised_of_retries_is_looked_at() -> None:
    check, run = RetryIdentity.counterexample()  # early retries are served
    assert check.judge(of(run, idempotency_keys=True)).status is FAILED
    both = RetryIdentity()
    assert both.judge(of(run, idempotency_keys=True, max_attempts=6)).status is FAILED
    without_keys = both.judge(of(run, max_attempts=6))
    assert without_keys.status is INCONCLUSIVE
    assert "only 0 retries were exhausted" in without_keys.because
    once = both.judge(of(run, max_attempts=1))
    assert (once.status, once.details["looked_at"]) == (FAILED, {"exhausted": 30})


def test_a_parameter_of_the_check_is_as_good_as_a_declaration() -> None:
    assert TenantLimit(per_minute=60).rests() == frozenset()
    assert Budget(tokens=9).rests() == ConcurrencyCap(total=4).rests() == frozenset()
    assert RetryIdentity(max_attempts=3).rests() == frozenset()
    assert RetryIdentity(only=("early",)).rests() == {Truth.IDEMPOTENCY_KEYS}
    assert ClassBorrow(least=0.5).rests() == {Truth.CLASSES}


def test_a_check_is_explained_with_what_has_to_be_declared_for_it() -> None:
    assert "of somebody's gateway, declares.slots or declares.tenant_slots" in explain("concurrency-cap")
    assert "for a part of it, declares.queue.requests, declares.queue.age_s" in explain("bounded-queue")
    assert "declares" not in explain("own-answer").partition("Parameters")[0]


# --------------------------------------------------------------------------- how it is said


def test_thousands_are_set_apart_in_sentences_as_they_are_beside_them() -> None:
    run = calls(10, count=1_234)
    assert StatusCodes().judge(run).because.startswith("none of 1,234 answers was a 500")
    assert percent_of(1_090, 2_180) == "1,090 of 2,180 (50.0 %)"
