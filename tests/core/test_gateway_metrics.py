"""What a scrape says, at every step of random lives: nothing is lost, nothing is counted twice."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agentload.gateway.books import state_of
from agentload.gateway.core import GatewayCore
from agentload.gateway.metrics import Metrics, unaccounted
from agentload.gateway.protocol import (
    Stop,
)
from gateway_life import CLASSES, Life, core_of


class Scrape:
    """The text format, read by Prometheus's own parser."""

    def __init__(self, core: GatewayCore, now_ns: int) -> None:
        metrics = Metrics(core.books, lambda: core.admission.snapshot(now_ns, tenants=0))
        self.families = {
            family.name: family for family in text_string_to_metric_families(metrics.text().decode())
        }

    def total(self, name: str, **labels: str) -> int:
        """The sum over all series of one name that have these labels."""
        family = self.families["agentload_gateway_" + name.removesuffix("_total")]
        return round(
            sum(
                sample.value
                for sample in family.samples
                if sample.name == "agentload_gateway_" + name and labels.items() <= sample.labels.items()
            )
        )


def reconcile(core: GatewayCore, now_ns: int) -> None:
    """Everything that an operator can check from one scrape."""
    scrape = Scrape(core, now_ns)
    total = scrape.total
    assert total("offered_total") == total("refused_total") + total("admitted_total")
    open_now = total("waiting") + total("running")
    assert total("admitted_total") == total("ended_total") + open_now
    assert total("unaccounted") == 0
    assert total("running") == sum(total("in_flight", service_class=name) for name in CLASSES)
    assert total("queue_depth", boundary="class") == total("waiting")
    # The books, which know classes, against the scheduler, which does not ask them.
    for state in ("completed", "failed", "expired", "cancelled", "evicted"):
        assert total("class_ended_total", state=state) == total("ended_total", state=state), state
    for reason in core.admission.snapshot(now_ns).counters.refused_by:
        assert total("decisions_total", decision="refused", reason=reason.value) == total(
            "refused_total", reason=reason.value
        )
    assert total("decisions_total", decision="admitted") + open_now == total("admitted_total")
    assert total("requests_total") == total("decisions_total")


NAMES = [
    "arrive",
    "arrive",
    "arrive",
    "answer",
    "fail",
    "refuse",
    "leave",
    "wait",
    "garbage",
    "drain",
    "stop",
]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 7)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_a_scrape_reconciles_after_every_event(steps: list[tuple[str, int]], short_leases: bool) -> None:
    life = Life(core_of(lease_s=1.0 if short_leases else 600.0))
    for name, number in steps:
        getattr(life, name)(number)
        reconcile(life.core, life.now_ns)
    life.feed(Stop())
    reconcile(life.core, life.now_ns)
    assert len(life.records) == life.last_id


def test_a_state_that_is_not_counted_shows() -> None:
    core = core_of()
    life = Life(core)
    for _ in range(8):
        life.arrive(0)
    core.books.ended["gold", "completed"] += 1
    with pytest.raises(AssertionError):
        reconcile(core, life.now_ns)
    assert unaccounted(core.admission.snapshot(0), core.books) == -1


def test_all_states_occur_in_random_lives() -> None:
    """Else the property above would say nothing about the ones that do not."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        random = Random(seed)
        life = Life(core_of(slots=1, lease_s=1.0 if seed % 2 else 600.0))
        for _ in range(60):
            name = random.choice(("arrive", "arrive", "arrive", "answer", "fail", "refuse", "leave", "wait"))
            getattr(life, name)(random.randrange(8))
        reconcile(life.core, life.now_ns)
        seen.update(state_of(record) for record in life.records)
        seen.update(record.reason for record in life.records)
    states = {"refused", "completed", "failed", "expired", "cancelled", "evicted"}
    assert states | {"lease_expired", "class_queue_full", "deadline_unmeetable"} <= set(seen)
