"""Budgets: reserved when a request is let in, settled when it ends, refused without a promise."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentload.scheduler.budget_config import BudgetConfig, Per
from agentload.scheduler.budgets import Account, Charge, Room
from agentload.scheduler.config import GatewayConfig
from agentload.scheduler.reasons import Reason
from agentload.scheduler.wall_clock import WallClock
from scheduler_kit import MS, NS, Scene, gateway

TENANT_BUDGET = {"tenants": {"a": {"budget": {"tokens": 1000}}}}
PRICES = {"large": {"input_per_million": 3, "output_per_million": 15}, "small": {
    "input_per_million": 0.1, "output_per_million": 0.4}}  # fmt: skip


def spend(scene: Scene, tokens: int, **fields: Any) -> str:
    """One request after another: let in, served, settled; or what became of it."""
    request = scene.submit("a", tokens, **fields)
    fate = scene.fate(request)
    if fate == "dispatched":
        scene.end(request)
    return fate


def test_what_is_spent_is_refused_for_good_and_without_a_promise() -> None:
    scene = Scene(gateway(**TENANT_BUDGET))
    assert [spend(scene, 400) for _ in range(3)] == ["dispatched", "dispatched", "budget_spent"]
    assert spend(scene, 200) == "dispatched", "what still fits is let in"
    assert spend(scene, 1) == "budget_spent"
    assert [refusal.retry_after_s for refusal in scene.refusals] == [None, None]
    assert [refusal.detail for refusal in scene.refusals] == [
        "this tenant's, 800 of 1000 tokens spent, 400 more may be needed",
        "this tenant's, 1000 of 1000 tokens spent, 1 more may be needed",
    ]
    assert (Reason.BUDGET_SPENT.status, Reason.BUDGET_SPENT.invites_retry) == (402, False)
    assert scene.fate(scene.submit("b", 400)) == "dispatched", "another tenant's is its own"


def test_requests_that_race_cannot_all_have_the_last_of_it() -> None:
    scene = Scene(gateway(slots=64, tenant_slots=64, **TENANT_BUDGET))
    fates = [scene.fate(scene.submit("a", 300)) for _ in range(20)]
    assert fates.count("dispatched") == 3
    assert set(fates[3:]) == {"budget_reserved"}
    assert all((refusal.retry_after_s or 0) >= 1 for refusal in scene.refusals), "it may yet come free"


def test_what_was_reserved_and_not_used_comes_free() -> None:
    scene = Scene(gateway(**TENANT_BUDGET))
    short = scene.submit("a", 900, real_tokens=100)
    assert scene.fate(scene.submit("a", 200)) == "budget_reserved"
    scene.end(short)
    assert spend(scene, 900) == "dispatched"
    assert spend(scene, 1) == "budget_spent"


def test_those_that_never_start_give_everything_back() -> None:
    scene = Scene(gateway(slots=1, max_queue=1, **TENANT_BUDGET))
    running = scene.submit("b", 10)
    waiting = scene.submit("a", 900)
    assert scene.fate(scene.submit("a", 50)) == "class_queue_full"
    scene.cancel(waiting)
    scene.end(running)
    assert spend(scene, 1000) == "dispatched"


@pytest.mark.parametrize("how", ["failed", "abandoned", "lease"])
def test_failed_and_abandoned_calls_are_charged_what_they_used(how: str) -> None:
    scene = Scene(gateway(lease_s=5, **TENANT_BUDGET))
    call = scene.submit("a", 500, input_tokens=100)
    if how == "failed":
        scene.admission.complete(scene.now_ns, call.id, input_tokens=100, output_tokens=300, ok=False)
    else:
        scene.admission.progress(scene.now_ns, call.id, 300)
        if how == "abandoned":
            scene.cancel(call)
        else:
            scene.pass_time(6 * NS)
    scene.poll()
    assert scene.fate(scene.submit("a", 601)) == "budget_spent"
    assert scene.fate(scene.submit("a", 600)) == "dispatched"


def test_a_run_counts_its_steps_and_their_retries() -> None:
    scene = Scene(gateway(budgets={"run": {"calls": 5}}))
    fates = [
        spend(scene, 10, run_id="r1", idempotency_key=f"step-{step}", attempt=attempt)
        for step in range(4)
        for attempt in range(2)
    ]
    assert fates == ["dispatched"] * 5 + ["budget_spent"] * 3
    assert spend(scene, 10, run_id="r2") == "dispatched", "another run"
    assert spend(scene, 10) == "dispatched", "no run at all"
    assert scene.fate(scene.submit("b", 10, run_id="r1")) == "dispatched", "another tenant's of the same name"


def test_everybodys_budget_is_one() -> None:
    scene = Scene(gateway(budgets={"global": {"tokens": 1000}}))
    for tenant in ("a", "b"):
        scene.end(scene.submit(tenant, 400))
    assert scene.fate(scene.submit("c", 400)) == "budget_spent"
    assert scene.refusals[-1].detail == "that of all tenants together", "and not what they have spent"


def test_a_stranger_has_the_default_budget_and_a_contract_goes_before_it() -> None:
    scene = Scene(gateway(tenants={"a": {"budget": {"tokens": 50}}}, budgets={"tenant": {"tokens": 1000}}))
    assert spend(scene, 51) == "budget_spent"
    assert scene.fate(scene.submit("stranger", 1000)) == "dispatched"
    assert scene.fate(scene.submit("stranger", 1001)) == "budget_spent"


def test_money_is_counted_in_whole_millionths_rounded_up() -> None:
    config = gateway(prices=PRICES, tenants={"a": {"budget": {"cost": 0.0015}}})  # 1,500 millionths
    scene = Scene(config)
    assert spend(scene, 90, model="large", input_tokens=50) == "dispatched"  # 50 · 3 + 90 · 15 = 1,500
    assert spend(scene, 1, model="small") == "budget_spent"
    assert scene.refusals[-1].detail == "this tenant's, 0.0015 of 0.0015 cost spent, 1e-06 more may be needed"
    scene = Scene(config)
    assert spend(scene, 91, model="large", input_tokens=50) == "budget_spent"
    assert spend(scene, 101, model="unheard-of") == "budget_spent", "costs as much as the dearest"
    assert spend(scene, 3_750, model="small") == "dispatched"  # 0.4 each


def test_a_window_ends_when_the_utc_hour_does() -> None:
    scene = Scene(gateway(tenants={"a": {"budget": {"tokens": 100, "per": "hour"}}}))
    scene.now_ns = 3_590 * NS
    assert [spend(scene, 60), spend(scene, 60)] == ["dispatched", "budget_spent"]
    assert scene.refusals[-1].detail.endswith(" (per hour)")
    late = scene.submit("a", 40)
    scene.now_ns = 3_600 * NS
    assert spend(scene, 61) == "budget_reserved", "what runs on counts in the window in which it ends"
    assert spend(scene, 60) == "dispatched"
    scene.end(late)
    assert spend(scene, 1) == "budget_spent"


def test_forgotten_runs_begin_anew_and_memory_is_bounded() -> None:
    scene = Scene(gateway(budgets={"run": {"tokens": 100}, "remembered": 100}))
    assert spend(scene, 100, run_id="mine") == "dispatched"
    assert spend(scene, 1, run_id="mine") == "budget_spent"
    for k in range(200):
        scene.end(scene.submit("flood", 1, run_id=f"r{k}"))
    assert spend(scene, 1, run_id="mine") == "budget_spent", "others cannot make it forgotten"
    for k in range(10):
        spend(scene, 1, run_id=f"own-{k}")
    assert spend(scene, 1, run_id="mine") == "dispatched", "its own tenant can"


def test_an_output_beyond_what_was_expected_is_reserved_while_it_streams() -> None:
    scene = Scene(gateway(tenants={"a": {"budget": {"tokens": 2_000}}}))
    call = scene.submit("a", 0, max_output_tokens=None)  # 256 expected
    scene.admission.progress(scene.now_ns, call.id, 1_900)
    assert spend(scene, 200) == "budget_reserved"


@settings(max_examples=60, deadline=None)
@given(
    budget=st.integers(50, 2_000),
    tokens=st.lists(st.integers(1, 300), min_size=10, max_size=60),
    slots=st.integers(1, 16),
    seed=st.integers(0, 99),
)
def test_nothing_is_overspent_whoever_races_fails_or_leaves(
    budget: int, tokens: list[int], slots: int, seed: int
) -> None:
    random = Random(seed)
    config = gateway(slots=slots, tenant_slots=slots, tenants={"a": {"budget": {"tokens": budget}}})
    scene = Scene(config)
    spent = 0
    for declared in tokens:
        used = int(declared * random.random())
        request = scene.submit("a", declared, real_tokens=used)
        for open_call in [*scene.running.values()]:
            if random.random() < 0.4:
                ok = random.random() < 0.7
                spent += scene._real_tokens[open_call.id] if ok else 0
                scene.end(open_call, ok=ok)
        if scene.fate(request) == "budget_spent":
            assert spent + declared > budget
        assert spent <= budget
        scene.now_ns += MS
    while scene.running:
        last = next(iter(scene.running.values()))
        spent += scene._real_tokens[last.id]
        scene.end(last)
    assert spent <= budget
    account = scene.admission._door._budgets._contracted["a"]
    assert account.spent.tokens == spent
    assert account.idle


@pytest.mark.parametrize("per", list(Per))
def test_an_account_turns_its_window_by_the_calendar(per: Per) -> None:
    account = Account(BudgetConfig(calls=1, per=per), WallClock())
    account.spend(0, Charge(0, 0, 1))
    lengths = {"minute": 60, "hour": 3_600, "day": 86_400, "month": 31 * 86_400, "total": 10**9}
    last_ns = lengths[per] * NS - 1
    assert account.room(last_ns, Charge(0, 0, 1)) is Room.SPENT
    turned = account.room(last_ns + 1, Charge(0, 0, 1))
    assert turned is (Room.SPENT if per is Per.TOTAL else Room.ENOUGH)


@pytest.mark.parametrize(
    ("config", "amiss"),
    [
        ({"budgets": {"run": {}}}, "needs tokens, cost or calls"),
        ({"budgets": {"run": {"per": "week", "tokens": 1}}}, "minute"),
        ({"budgets": {"global": {"cost": 1}}}, "needs prices"),
        ({"tenants": {"a": {"budget": {"cost": 1}}}}, "needs prices"),
    ],
)
def test_budgets_that_bound_nothing_are_refused(config: dict[str, Any], amiss: str) -> None:
    with pytest.raises(ValidationError, match=amiss):
        GatewayConfig.model_validate(config)
