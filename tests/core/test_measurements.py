"""What the articles want measured, ten things and five signals, by the metrics that tell them."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentload.gateway.jobs.figures import figures
from agentload.gateway.metrics import Metrics
from agentload.gateway.protocol import Tick
from agentload.model import NS
from gateway_life import Life, arrival, core_of
from jobs_world import World, chat_step, tool_step

MEASURES: dict[str, list[tuple[str, set[str]]]] = {
    "admission decision and rejection reason": [("decisions_total", {"service_class", "decision", "reason"})],
    "queue wait by tenant and service class": [("queue_wait_seconds_bucket", {"service_class", "tenant"})],
    "estimated versus actual tokens": [("tokens_total", {"direction", "kind"})],
    "tool cost": [("tools_total", {"what", "kind"}), ("job_tool_calls_total", set())],
    "in-flight work": [("in_flight", {"service_class"})],
    "reserved capacity": [("reserved_units", {"service_class"}), ("capacity_units", {"pool"})],
    "dispatch share by fairness key": [("tenant_dispatched_total", {"tenant", "service_class"})],
    "work share by fairness key": [("tenant_work_units_total", {"tenant", "service_class"})],
    "retry count": [("retries_total", {"service_class", "attempt"})],
    "retry delay": [("retry_delay_seconds_bucket", {"service_class"})],
    "lease age": [("lease_age_seconds", {"pool"}), ("job_lease_age_seconds", set())],
    "reclaim count": [("lease_reclaims_total", {"service_class"}), ("job_lease_reclaims_total", set())],
    "model execution time": [("model_seconds_bucket", {"service_class"})],
    "tool execution time": [("job_tool_seconds_total", set())],
    "deadline misses": [("deadline_misses_total", {"service_class", "where"})],
    "expired jobs": [("ended_total", {"state"}), ("jobs", {"state"})],
    "queue depth at each boundary": [("queue_depth", {"boundary", "queue"})],
    "queue age": [("queue_age_seconds", {"boundary", "queue"})],
    "concurrency use": [("pool_reserved_slots", {"pool"}), ("capacity_slots", {"pool"})],
    "429 rate of the provider": [("provider_refusals_total", set())],
    "tokens per tenant": [("tenant_tokens_total", {"tenant", "direction"})],
    "step-limit rate": [("job_step_limits_total", set())],
    "why it waited": [("waits_explained_total", {"service_class", "cause"})],
}


@pytest.fixture(scope="module")
def scraped() -> dict[str, set[str]]:
    """Names of all metrics after a life in which everything happens, and the labels of each."""
    life = Life(core_of(slots=1, lease_s=3.0, tokens_per_minute=1e6))
    gold: dict[str, Any] = {"x_service_class": "gold", "x_expected_tool_calls": "2"}
    gold["x_expected_tool_seconds"] = "1"
    life.feed(arrival(1, **gold))
    life.feed(arrival(2, x_attempt="1", x_deadline_ms="500", **gold))
    for number in (3, 4, 5):
        life.feed(arrival(number, **gold))
    life.now_ns = NS
    life.feed(Tick())
    life.answer(0)
    life.refuse(0)
    life.now_ns = 30 * NS
    life.feed(arrival(6, **gold))
    life.now_ns = 60 * NS
    life.feed(Tick())  # nothing was heard of it for a whole lease
    world = World()
    world.accept([chat_step(), tool_step()])
    world.settle()
    metrics = Metrics(life.core.books, lambda: life.core.admission.snapshot(life.now_ns, tenants=0))
    metrics.jobs = lambda: figures(world.alive.front.jobs, world.now_ns)
    return {
        sample.name.removeprefix("agentload_gateway_"): set(sample.labels)
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("measure", MEASURES)
def test_it_is_measured(measure: str, scraped: dict[str, set[str]]) -> None:
    for name, labels in MEASURES[measure]:
        assert name in scraped
        assert labels <= scraped[name]
