"""`--scale`: what grows with the load does, nothing else does, and what cannot be scaled says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentload import arrivals, checks, plan, profile
from agentload.calibration.demand import demand_of
from agentload.errors import UsageError
from agentload.extensive import Growth, grown
from agentload.model import Profile, Spec
from agentload.order import Options, prepare
from agentload.profile import scale
from agentload.profile.scale import least, lengthening, most, scaled
from agentload.scheduler.budget_config import BudgetConfig
from agentload.scheduler.config import (
    ClassConfig,
    GatewayConfig,
    PoolConfig,
    RetryConfig,
    ShuffleConfig,
    TenantConfig,
    UpstreamLimits,
)
from agentload.scheduler.jobs_config import JobsSettings
from fake_provider import faults as provider_side
from fake_provider.config import ModelLimits, ProviderConfig

SCALES = (0.25, 0.5, 2.0, 4.0)
SMALL = """
name: small
about: Ten a second.
phases:
  - {name: load, seconds: 10}
provider: {tokens_per_minute: 6000000, slots: 8}
tenants:
  - {name: app, arrivals: {kind: poisson, rate: 10}, workload: {kind: chat}}
  - {name: loop, users: 4, workload: {kind: chat}}
checks:
  - bounded-queue
"""


def bundled() -> dict[str, Profile]:
    return {name: profile.load(profile.find(name)) for name in profile.names()}


def parsed(text: str, *settings: str) -> Profile:
    return profile.parse(text, "small.yaml", settings)


def allowed(one: Profile, factor: float) -> bool:
    return least(one).factor <= factor <= most(one).factor


# --------------------------------------------------------------------------- what holds of every profile


@pytest.mark.parametrize("name", profile.names())
def test_by_one_a_profile_is_itself(name: str) -> None:
    whole = profile.load(profile.find(name))
    assert scaled(whole, 1.0) == whole


@pytest.mark.parametrize("factor", SCALES)
@pytest.mark.parametrize("name", [name for name in profile.names() if name != "long-jobs"])
def test_the_load_stays_what_it_is_relative_to_the_capacity(name: str, factor: float) -> None:
    whole = profile.load(profile.find(name))
    if not allowed(whole, factor):
        pytest.skip("cannot be scaled so far, and says so")
    other = scaled(whole, factor)
    before, after = plan.draw(whole, 1), plan.draw(other, 1)
    rates = [len(drawn.arrivals) / one.duration_ns for drawn, one in ((before, whole), (after, other))]
    assert rates[1] == pytest.approx(rates[0] * factor, rel=0.12)
    assert after.closed_users == pytest.approx(before.closed_users * factor, rel=0.05)
    capacities = [demand_of(one, drawn).capacity_per_s for one, drawn in ((whole, before), (other, after))]
    assert capacities[1] == pytest.approx(capacities[0] and capacities[0] * factor, rel=0.01)


@pytest.mark.parametrize("name", profile.names())
def test_below_one_every_phase_brings_as_many_samples_as_before(name: str) -> None:
    whole = profile.load(profile.find(name))
    if not allowed(whole, 0.5):
        pytest.skip("cannot be scaled so far, and says so")
    other = scaled(whole, 0.5)
    assert other.duration_ns == 2 * whole.duration_ns
    for before, after in zip(whole.tenants, other.tenants, strict=True):
        if before.arrivals is not None and after.arrivals is not None:
            counts = [
                arrivals.make(spec).mean_count(phase.seconds) or 0
                for spec, phase in zip(
                    (before.arrivals, after.arrivals), (whole.phases[-1], other.phases[-1]), strict=True
                )
            ]
            assert counts[1] == pytest.approx(counts[0], rel=0.15, abs=1)


@pytest.mark.parametrize("name", profile.names())
def test_a_scaled_profile_survives_its_way_to_the_workers(name: str) -> None:
    whole = profile.load(profile.find(name))
    for factor in (least(whole).factor or 0.25, 0.37, 3.3):
        if allowed(whole, factor):
            other = scaled(whole, factor)
            assert profile.from_json(profile.to_json(other)) == other
            assert profile.quick(other).duration_ns <= other.duration_ns


# --------------------------------------------------------------------------- what grows, and what does not

INTENSIVE = {
    ProviderConfig: {
        "bucket_s", "default_output_tokens", "seed", "max_ledger_entries", "context_tokens",
    },
    ModelLimits: set[str](),
    PoolConfig: {"headroom", "gather_after_s", "lease_s"},
    ClassConfig: {"nominal_share", "max_wait_s", "lendable", "borrows"},
    ShuffleConfig: {"queues", "hand", "seed"},
    TenantConfig: {"weight", "burst_s"},
    UpstreamLimits: {"bucket_s", "margin"},
    RetryConfig: {"max_attempts", "base_seconds", "max_seconds", "remembered_keys"},
    BudgetConfig: set[str](),
    JobsSettings: {
        "lease_s", "heartbeat_s", "max_attempts", "retention_s", "step_limit", "deadline_s", "step_timeout_s",
        "tool_timeout_s", "tool_connect_s", "max_total_tokens", "max_output_bytes", "ahead",
    },
    GatewayConfig: {"max_tenants"},
}  # fmt: skip
EXTENSIVE = {
    ProviderConfig: (*scale.PROVIDER, *scale.SLOTS),
    ModelLimits: scale.LIMITS,
    PoolConfig: scale.POOL,
    ClassConfig: (*scale.CLASS, *scale.FLOOR),
    TenantConfig: (*scale.LIMITS, *scale.SLOTS),
    UpstreamLimits: scale.LIMITS,
    BudgetConfig: scale.BUDGET,
    JobsSettings: scale.JOBS,
}


@pytest.mark.parametrize("model", INTENSIVE, ids=lambda model: model.__name__)
def test_of_every_number_it_is_known_whether_it_grows(model: type[BaseModel]) -> None:
    """A new setting has to be put on one of the two lists."""
    numbers = {name for name, field in model.model_fields.items() if _is_number(field.annotation)}
    grows = set(EXTENSIVE.get(model, ()))
    assert numbers == grows | INTENSIVE[model]
    assert not grows & INTENSIVE[model]


def _is_number(annotation: Any) -> bool:
    inner = getattr(annotation, "__args__", (annotation,))
    return any(one in (int, float) for one in inner)


def test_every_setting_that_grows_has_grown() -> None:
    before = parsed(
        SMALL,
        "provider.requests_per_minute=9000",
        "provider.max_queue=10",
        "provider.model_limits={m: {tokens_per_minute: 100}}",
        "gateway.pools={p: {slots: 8, tenant_slots: 4, classes: {standard: {max_queue: 20, min_units: 10}}}}",
        "gateway.tenants={app: {requests_per_minute: 60, slots: 4}}",
        "gateway.upstream={models: {m: {requests_per_minute: 30}}}",
        "gateway.budgets={global: {tokens: 1000}, tenant: {calls: 100, per: minute}, run: {tokens: 50}}",
        "gateway.jobs={tool_slots: 16}",
    )
    after = scaled(before, 0.5)
    assert (after.provider.requests_per_minute, after.provider.max_queue, after.provider.slots) == (
        4500,
        5,
        4,
    )
    assert after.provider.model_limits["m"].tokens_per_minute == 50
    pool, gateway = after.gateway.pools["p"], after.gateway
    assert (pool.slots, pool.tenant_slots, pool.capacity_units) == (4, 2, 50)
    assert (pool.classes["standard"].max_queue, pool.classes["standard"].min_units) == (10, 5)
    assert (gateway.tenants["app"].requests_per_minute, gateway.tenants["app"].slots) == (30, 2)
    assert gateway.upstream.tokens_per_minute == 3_000_000
    assert gateway.upstream.models["m"].requests_per_minute == 15
    assert gateway.jobs is not None
    assert gateway.jobs.tool_slots == 8
    everybody, tenant, run = gateway.budgets.everybody, gateway.budgets.tenant, gateway.budgets.run
    assert (everybody and everybody.tokens) == 1000, "half as much, for twice as long"
    assert (tenant and tenant.calls) == 50, "of a minute"
    assert (run and run.tokens) == 50, "one user's, who does what it did"
    assert [one.users for one in after.tenants] == [None, 2]
    assert after.tenants[0].arrivals == Spec(kind="poisson", params={"rate": 5.0})
    assert after.phases[0].seconds == 20
    assert (after.drain_s, after.provider.latency) == (before.drain_s, before.provider.latency)


def test_where_tokens_bind_slots_keep_their_reserve_and_where_slots_bind_they_shrink_with_the_load() -> None:
    """Of noisy-neighbor's 32 slots 13 are in use on average; of two, all would be, one time in thirty."""
    noisy = bundled()["noisy-neighbor"]
    slots = {factor: scaled(noisy, factor).provider.slots for factor in (1.0, 0.5, 0.25, 0.0625, 2.0)}
    assert slots == {1.0: 32, 0.5: 20, 0.25: 13, 0.0625: 6, 2.0: 64}
    assert scaled(noisy, 0.25).gateway.pools["shared"].slots == 13
    assert scaled(bundled()["weighted-fair"], 0.25).provider.slots == 4


def test_above_one_phases_stay_and_budgets_grow() -> None:
    before = parsed(SMALL, "gateway.budgets={global: {tokens: 1000}}")
    after = scaled(before, 3.0)
    assert after.phases == before.phases
    assert after.gateway.budgets.everybody is not None
    assert after.gateway.budgets.everybody.tokens == 3000


def test_what_checks_count_grows_and_what_they_compare_does_not() -> None:
    def after(check: Spec, load: float, time: float) -> checks.Check:
        return checks.make(check).scaled(Growth(load=load, slots=load, time=time))

    limit = after(Spec(kind="tenant-limit", params={"per_minute": 600, "burst": 20}), 0.5, 2.0)
    assert (limit.per_minute, limit.burst, limit.min_admitted) == (300, 10, 0.9)  # type: ignore[attr-defined]
    queue = after(Spec(kind="bounded-queue", params={"max_depth": 100}), 0.5, 2.0)
    assert (queue.max_depth, queue.slack, queue.max_age_s) == (50, 16, None)  # type: ignore[attr-defined]
    assert after(Spec(kind="bounded-queue"), 4.0, 1.0).slack == 64  # type: ignore[attr-defined]
    everybody = after(Spec(kind="budget", params={"tokens": 1000, "of": "everybody"}), 3.0, 1.0)
    assert everybody.tokens == 3000  # type: ignore[attr-defined]
    run = after(Spec(kind="budget", params={"tokens": 1000, "of": "run"}), 3.0, 1.0)
    assert run.tokens == 1000  # type: ignore[attr-defined]
    assert after(Spec(kind="no-starvation"), 0.25, 4.0).max_wait_s == 20  # type: ignore[attr-defined]
    assert after(Spec(kind="no-starvation"), 4.0, 1.0).max_wait_s == 5  # type: ignore[attr-defined]
    assert after(Spec(kind="victim-latency"), 0.25, 4.0).grace_ms == 640  # type: ignore[attr-defined]
    assert after(Spec(kind="victim-latency"), 4.0, 1.0).grace_ms == 20  # type: ignore[attr-defined]
    goodput = Spec(kind="victim-goodput")
    assert after(goodput, 0.25, 4.0) == checks.make(goodput)


def test_extensive_parameters_exist() -> None:
    for name in checks.SEAM.names():
        check = checks.SEAM.get(name)
        assert {*check.extensive, *check.extensive_slots} <= set(check.model_fields), name
    for kind in provider_side.kinds():
        fault = provider_side.of_kind(kind)
        assert set(fault.extensive_slots) <= set(fault.model_fields), kind


def test_whole_numbers_stay_whole_and_halves_go_up() -> None:
    assert [grown(16, 0.3), grown(5, 0.5), grown(1, 0.1), grown(0, 0.1)] == [5, 3, 1, 0]
    assert grown(None, 2.0) is None
    assert grown(7, 1.0) == 7
    assert grown(0.7, 1.0) == 0.7


# --------------------------------------------------------------------------- faults

FAULTY = """
faults:
  - {kind: slots-cut, at_s: 2, seconds: 4, to: 4}
  - {kind: outage, phase: load, retry_after_s: 10}
  - {kind: slow-down, phase: load, retry_after_s: 1}
  - {kind: gateway-kill, at_s: 5, restart_after_s: 0.5}
"""


def test_faults_move_and_last_with_their_phases_but_a_process_restarts_as_fast_as_ever() -> None:
    cut, outage, slow, kill = scaled(parsed(SMALL + FAULTY), 0.5).faults
    assert (cut.at_s, cut.seconds, cut.params) == (4, 8, {"to": 2})
    assert outage.params == {"retry_after_s": 20}, "it still tells when it is over"
    assert slow.params == {"retry_after_s": 1}
    assert (kill.at_s, kill.seconds) == (10, 0.5)


def test_a_larger_provider_loses_more_slots() -> None:
    assert scaled(parsed(SMALL + FAULTY), 2.0).faults[0].params == {"to": 8}


# --------------------------------------------------------------------------- what cannot be


def refusal(one: Profile, factor: float) -> str:
    with pytest.raises(UsageError) as raised:
        scaled(one, factor)
    assert len(raised.value.lines) == 1
    return str(raised.value)


def test_too_few_slots_or_users_are_refused_with_the_least_factor() -> None:
    assert refusal(parsed(SMALL), 0.2) == (
        "--scale 0.2: small cannot be scaled by less than 0.25: provider.slots is 8, and 2 must remain"
    )
    assert "loop has 2 users, and one must remain" in refusal(parsed(SMALL, "tenants.loop.users=2"), 0.3)
    assert scaled(parsed(SMALL), 0.25)


def test_a_burst_of_less_than_one_request_is_refused() -> None:
    bursts = parsed(SMALL, "tenants.app.arrivals={kind: bursts, size: 3, every_s: 1}")
    assert "than 0.3333: of app's bursts one request at a time must remain" in refusal(bursts, 0.3)


def test_an_arrival_process_that_does_not_say_how_it_scales_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals.SEAM.get("poisson"), "scaled", arrivals.ArrivalProcess.scaled)
    assert refusal(parsed(SMALL), 0.5) == "--scale 0.5: app: poisson: it does not say how it scales"


def test_a_rate_or_a_plan_that_cannot_be_is_refused() -> None:
    assert "app: poisson: rate" in refusal(parsed(SMALL, "tenants.app.arrivals.rate=5000"), 100.0)
    assert "arrivals, at most 2,000,000" in refusal(parsed(SMALL, "phases.load.seconds=500"), 800.0)


def test_a_profile_says_by_itself_how_far_it_can_be_scaled_and_why() -> None:
    limited = parsed(SMALL, "scale={least: 0.5, most: 2, because: so it is}")
    assert refusal(limited, 0.4) == "--scale 0.4: small cannot be scaled by less than 0.5: so it is"
    assert refusal(limited, 3.0) == "--scale 3: small cannot be scaled by more than 2: so it is"
    assert "long-jobs cannot be scaled: its wide jobs" in refusal(bundled()["long-jobs"], 2.0)


def test_every_bound_of_a_bundled_profile_has_its_reason() -> None:
    for name, one in bundled().items():
        if one.scale != type(one.scale)():
            assert one.scale.because, name


def test_phases_do_not_last_for_hours() -> None:
    assert lengthening(parsed(SMALL), 0.25) == 4
    assert lengthening(parsed(SMALL, "phases.load.seconds=900"), 0.25) == 2
    assert lengthening(parsed(SMALL), 4.0) == 1


def test_users_of_somebodys_own_code_are_scaled_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from locust import HttpUser\n\nclass Mine(HttpUser): pass\n")
    (tmp_path / "p.yaml").write_text(
        SMALL.replace("users: 4, workload: {kind: chat}", "locust: {file: mine.py, class: Mine, users: 4}")
    )
    before = profile.load(tmp_path / "p.yaml")
    after = scaled(before, 0.5).tenants[1].locust
    assert after is not None
    assert after.users == 2
    assert demand_of(before, plan.draw(before, 1)).peak_per_s > 0


@pytest.mark.parametrize("wrong", ["", "0", "-1", "nan", "inf", "half", "1e9", "0.0001"])
def test_a_factor_is_a_number_within_reason(wrong: str) -> None:
    with pytest.raises(UsageError, match="must be auto, or a factor from"):
        scale.factor_of(wrong)


def test_options_are_applied_before_the_scale_and_quick_after_it() -> None:
    options = Options(profile="noisy-neighbor", settings=("provider.slots=64",), scale="0.5", quick=True)
    made = prepare(options)
    assert (
        made.profile.provider.slots
        == scaled(profile.load(profile.find("noisy-neighbor"), ["provider.slots=64"]), 0.5).provider.slots
    )
    assert made.profile.provider.slots != 20, "as without the option"
    assert made.scale == {"factor": 0.5, "phases_longer": 2.0}
    whole = scaled(profile.load(profile.find("noisy-neighbor")), 0.5)
    assert whole.duration_ns / 2 <= made.profile.duration_ns < whole.duration_ns
    assert prepare(Options(profile="noisy-neighbor", scale="1")).scale is None
