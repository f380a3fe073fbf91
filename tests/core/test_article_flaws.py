"""The published sketches' flaws: which test shows that each is avoided, and those that nothing else shows.

The sketches are the code of "The Queue Is Part of the Agent" and of its companion on concurrency; the numbers
are those of the list that was made when they were read and played.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from agentload.gateway.core import GatewayCore
from agentload.gateway.metrics import Metrics
from agentload.model import NS
from agentload.scheduler.admission import Refused
from agentload.scheduler.config import ClassConfig, GatewayConfig, PoolConfig, TenantConfig
from agentload.scheduler.fair_queue import FairQueue
from agentload.scheduler.policies.article_drr import ArticleDrr
from agentload.scheduler.policies.fifo import Fifo
from agentload.scheduler.policies.sfq import StartTimeFairQueue
from gateway_life import Life, arrival, core_of
from named_tests import ROOT, problem
from scheduler_broken import NeverSettles
from scheduler_kit import AMPLE, MS, Scene, gateway, serve_backlogged
from scheduler_scenes import WEIGHTS

HERE = "tests/core/test_article_flaws.py"
SCHEDULER = "tests/core/test_scheduler_"
ANSWERS = "tests/core/test_lifecycle_answers.py"
SHOWN_BY = {
    1: f"{HERE}::test_flaw_01_every_call_starts_a_job",
    2: f"{SCHEDULER}fairness.py::test_three_tenants_get_50_30_20_percent_of_the_work",
    3: f"{SCHEDULER}policies.py::test_drr_keeps_its_bound",
    4: f"{SCHEDULER}fairness.py::test_debt_survives_idling",
    5: f"{SCHEDULER}pool.py::test_a_wide_job_is_passed_for_a_while_and_then_gathers_units",
    6: f"{HERE}::test_flaw_06_weights_are_interleaved",
    7: f"{SCHEDULER}fairness.py::test_what_was_not_estimated_is_paid_afterwards",
    8: f"{SCHEDULER}fairness.py::test_whoever_declares_too_little_gets_its_share_of_what_it_really_uses",
    9: f"{SCHEDULER}bounds.py::test_a_waiter_that_leaves_makes_room_at_once",
    10: f"{HERE}::test_flaw_10_a_weight_is_a_positive_number",
    11: f"{SCHEDULER}invariants.py::test_capacity_is_released_once_however_often_the_end_is_reported",
    12: f"{SCHEDULER}bounds.py::test_what_can_never_be_served_is_refused_for_good",
    13: f"{SCHEDULER}pool.py::test_without_gathering_small_jobs_always_slip_past_a_wide_one",
    14: f"{SCHEDULER}borrowing.py::test_a_legal_job_of_forty_units_starts_in_a_class_whose_share_is_fifteen",
    15: f"{SCHEDULER}borrowing.py::test_limits_and_floors_hold_whatever_happens",
    16: f"{SCHEDULER}bounds.py::test_a_wait_that_would_be_too_long_is_refused_at_once",
    17: "tests/core/test_jobs.py::test_every_bound_refuses_with_a_promise",
    18: f"{ANSWERS}::test_every_reason_of_the_scheduler_has_words_a_status_and_an_outcome",
    19: f"{SCHEDULER}retry_after.py::test_promises_beyond_the_cap_are_spread_below_it",
    20: f"{SCHEDULER}attempts.py::test_an_attempt_count_cannot_be_reset_by_saying_less",
    21: f"{HERE}::test_flaw_21_each_dimension_is_seen_by_itself",
    22: f"{HERE}::test_flaw_22_a_heavy_tail_that_nobody_declared_is_shared_by_weight",
    23: "tests/core/test_comeback.py::test_the_envelope_sent_back_is_read_and_believed_as_far_as_it_is_true",
    24: "tests/core/test_jobs_safeguards.py::test_without_its_safeguard_it_is_broken",
    25: f"{HERE}::test_flaw_25_nobody_waits_in_a_semaphore",
    26: "tests/core/test_lifecycle.py::test_every_timeout_fits_into_what_the_deadline_leaves",
    27: f"{HERE}::test_flaw_27_dispatches_and_work_are_both_counted",
    28: f"{SCHEDULER}budgets.py::test_a_run_counts_its_steps_and_their_retries",
}  # fmt: skip


def test_each_of_the_28_is_shown_to_be_avoided() -> None:
    assert list(SHOWN_BY) == list(range(1, 29))
    assert [found for found in map(problem, SHOWN_BY.values()) if found is not None] == []


# ---------------------------------------------------------------- choose_next


@pytest.mark.parametrize("units", [1, 12, 40])
def test_flaw_01_every_call_starts_a_job(units: int) -> None:
    """`choose_next` returns a lane and starts nobody when no credit covers a job (at 40 units: 75 %)."""
    scene = Scene(gateway(slots=1, tenant_slots=1, weights=WEIGHTS))
    for tenant in [*WEIGHTS] * 20:
        scene.submit(tenant, units * 1000)
    for started in range(1, 60):
        assert len(scene.dispatched) == started
        scene.now_ns += MS
        scene.end(next(iter(scene.running.values())))
    assert Counter(scene.dispatched) == dict.fromkeys(WEIGHTS, 20)


def longest_run(policy: type[FairQueue]) -> int:
    """Dispatches in a row of one of three tenants with weights 5, 3 and 2, when all jobs cost a unit."""
    scene = Scene(gateway(slots=1, tenant_slots=1, weights=WEIGHTS), policy=policy)
    serve_backlogged(scene, [*WEIGHTS], 500, lambda _: 1000, depth=10)
    longest = length = 0
    before = ""
    for tenant in scene.dispatched:
        length = length + 1 if tenant == before else 1
        longest, before = max(longest, length), tenant
    return longest


def test_flaw_06_weights_are_interleaved() -> None:
    """Most credit first serves the largest weight in one burst, here without end."""
    assert longest_run(StartTimeFairQueue) <= 2
    assert longest_run(ArticleDrr) > 100


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "heavy"])
def test_flaw_10_a_weight_is_a_positive_number(weight: Any) -> None:
    with pytest.raises(ValidationError, match="weight"):
        TenantConfig.model_validate({"weight": weight})


def test_an_idle_tenants_share_goes_to_the_others() -> None:
    """5/3/2 with the first one idle is 60/40 of everything, and no capacity stands idle for it."""
    scene = Scene(gateway(slots=8, tenant_slots=8, weights=WEIGHTS))
    serve_backlogged(scene, ["b", "c"], 3_000, lambda _: 1000, depth=10)
    assert len(scene.running) == 8
    share = scene.work["b"] / sum(scene.work.values())
    assert share == pytest.approx(0.6, abs=0.005)


# ---------------------------------------------------------------- what work is


@pytest.mark.parametrize(
    ("fields", "binding"),
    [
        ({"input_tokens": 50_000}, "tokens"),
        ({"tool_calls": 200}, "tool_calls"),
        ({"tool_seconds": 600.0}, "tool_seconds"),
    ],
)
def test_flaw_21_each_dimension_is_seen_by_itself(fields: dict[str, Any], binding: str) -> None:
    """One number hides what binds: ten minutes of a tool are sixty units, and the provider does nothing."""
    scene = Scene(gateway(max_reservation_units=40))
    wide = scene.submit("a", 1000, **fields)
    assert scene.fate(wide) == "too_wide"
    [event] = scene.of(Refused)
    units = {name: float(value) for name, value in re.findall(r"(\w+) ([\d.]+)[,)]", event.detail)}
    assert max(units, key=lambda name: units[name]) == binding
    assert event.detail.endswith("at most 40")
    # And each has its coefficient: a pool whose tools cost the provider nothing counts them as nothing.
    config = gateway()
    coefficients = {"units_per_tool_second": 0.0, "max_reservation_units": 40.0}
    free = Scene(config.model_copy(update={"estimation": config.estimation.model_copy(update=coefficients)}))
    assert free.fate(free.submit("a", 1000, tool_seconds=600.0)) == "dispatched"


def shares_of_a_heavy_tail(policy: type[FairQueue]) -> dict[str, float]:
    """Shares of real work, where nobody declares anything and a few answers are as long as all the others."""
    random = Random(3)
    scene = Scene(gateway(slots=16, tenant_slots=16, weights=WEIGHTS), policy=policy)

    def send(tenant: str) -> None:
        # The smallest weight's answers have the heaviest tail, and all the same mean of about 1,200 tokens.
        alpha = 1.2 if tenant == "c" else 3.0
        real = 1_200 * (1 - 1 / alpha) / (1 - random.random()) ** (1 / alpha)
        scene.submit(
            tenant, 0, real_tokens=int(min(40_000.0, real)), max_output_tokens=None, workflow="agent"
        )

    for tenant in [*WEIGHTS] * 40:
        send(tenant)
    for _ in range(8_000):
        scene.now_ns += MS
        running = list(scene.running.values())
        ended = running[int(random.random() * len(running))]
        scene.end(ended)
        send(ended.tenant)
    total = sum(scene.work.values())
    return {tenant: scene.work[tenant] / total for tenant in WEIGHTS}


def test_flaw_22_a_heavy_tail_that_nobody_declared_is_shared_by_weight() -> None:
    """The mean of a heavy tail is too little for the dear and too much for most: the real cost counts."""
    entitled = pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.002)
    assert shares_of_a_heavy_tail(StartTimeFairQueue) == entitled
    assert shares_of_a_heavy_tail(NeverSettles) != entitled


# ---------------------------------------------------------------- waiting


def test_flaw_25_nobody_waits_in_a_semaphore() -> None:
    """The waiters of an asyncio.Semaphore are a queue without bound, tenants, deadlines or an end."""
    waiting_rooms = {"Semaphore", "BoundedSemaphore", "Lock", "Condition", "LifoQueue", "PriorityQueue"}
    found: list[str] = []
    for path in sorted((ROOT / "harness" / "agentload" / "gateway").rglob("*.py")):
        found += [f"{path.name}: {name}" for name in _asyncio_names(path) if name in waiting_rooms]
    assert found == []


def _asyncio_names(path: Path) -> list[str]:
    return [
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    ]


# ---------------------------------------------------------------- what is counted


def scrape(core: GatewayCore, now_ns: int) -> dict[str, dict[str, float]]:
    """Counters of /metrics by name, then by the tenant or class that they are of."""
    text = Metrics(core.books, lambda: core.admission.snapshot(now_ns, tenants=0)).text().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.labels.get("tenant") or sample.labels.get("service_class") or ""
            found.setdefault(sample.name.removeprefix("agentload_gateway_"), {})[key] = sample.value
    return found


def test_flaw_27_dispatches_and_work_are_both_counted() -> None:
    """Half of the dispatches is not half of the work: an operator sees both."""
    one = ClassConfig(max_queue=8)
    config = GatewayConfig(
        pools={"shared": PoolConfig(slots=8, tenant_slots=8, classes={"standard": one})},
        tenants={"small": TenantConfig(), "large": TenantConfig()},
    )
    life = Life(GatewayCore(config, core_of().settings, Random(1)))
    for number in range(4):
        life.last_id += 1
        large = number % 2 == 1
        event = arrival(life.last_id, tenant="large" if large else "small")
        if large:
            event = type(event)(
                event.request_id, event.headers, event.body.replace(b'"max_tokens": 8', b'"max_tokens": 80')
            )
        life.feed(event)
        life.answer(0)
    seen = scrape(life.core, life.now_ns)
    assert seen["tenant_dispatched_total"] == {"small": 2, "large": 2}
    units = seen["tenant_work_units_total"]
    assert units["large"] > 3 * units["small"] > 0


def test_wait_execution_and_retry_time_are_kept_apart() -> None:
    life = Life(core_of(slots=1))
    life.feed(arrival(1, x_service_class="gold"))  # served for 2 s
    life.feed(arrival(2, x_service_class="gold"))  # waits 2 s, is served for 1 s
    life.feed(arrival(3, x_service_class="gold"))
    life.feed(arrival(4, x_service_class="gold"))  # refused: told to wait
    life.last_id = 4
    life.now_ns = 2 * NS
    life.answer(0)
    life.now_ns = 3 * NS
    life.answer(0)
    seen = scrape(life.core, life.now_ns)
    assert seen["queue_wait_seconds_sum"]["other"] == 2.0
    assert seen["model_seconds_sum"]["gold"] == 3.0
    [refused] = [record for record in life.records if record.retry_after_s is not None]
    assert seen["retry_delay_seconds_sum"]["gold"] == refused.retry_after_s


# ---------------------------------------------------------------- priority and fairness


def test_priority_and_fairness_are_exchanged_one_without_the_other() -> None:
    """Another order of tenants leaves the classes' shares as they are, and the other way about."""

    def served(policy: type[FairQueue], shares: tuple[float, float]) -> tuple[float, float]:
        """Share of all dispatches that `gold` has, and share of `gold`'s that its quiet tenant has."""
        roomy: dict[str, Any] = {"max_queue": AMPLE, "tenant_max_queue": AMPLE, "max_wait_s": 1e6}
        names = dict(zip(("gold", "plain"), shares, strict=True))
        classes = {name: ClassConfig(nominal_share=share, **roomy) for name, share in names.items()}
        scene = Scene(gateway(classes=classes, slots=8, tenant_slots=8), policy=policy)
        for _ in range(400):
            for tenant, count in (("quiet", 1), ("noisy", 4)):
                for _ in range(count):
                    for name in classes:
                        scene.submit(f"{name}-{tenant}", service_class=name)
        for _ in range(400):
            scene.now_ns += MS
            scene.end(next(iter(scene.running.values())))
        count = Counter(scene.dispatched)
        gold = count["gold-quiet"] + count["gold-noisy"]
        return gold / count.total(), count["gold-quiet"] / gold

    assert served(StartTimeFairQueue, (0.7, 0.3)) == pytest.approx((0.7, 0.5), abs=0.02)
    assert served(Fifo, (0.7, 0.3)) == pytest.approx((0.7, 0.2), abs=0.02)
    assert served(StartTimeFairQueue, (0.4, 0.6)) == pytest.approx((0.4, 0.5), abs=0.02)
