"""The alert rules, played on what a real scheduler tells while it is stuck, and while it is merely busy."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from agentload.gateway.books import Books
from agentload.gateway.metrics import Metrics
from agentload.gateway.tenant_labels import TenantLabels
from agentload.scheduler.config import GatewayConfig
from promql import Series, firing
from scheduler_kit import NS, Scene, gateway

RULES_FILE = files("agentload.gateway") / "alerts.yaml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
EVERY_S = 15
STUCK, SLOW = "AgentloadQueueStuck", "AgentloadQueueSlow"
DEEP = "sum(agentload_gateway_queue_depth) > 1000"
"""The alert that one should not have."""


def seconds(span: str) -> float:
    return int(span[:-1]) * {"s": 1, "m": 60, "h": 3600}[span[-1]]


class Scraped:
    """A scheduler whose page is read every 15 s."""

    def __init__(self, config: GatewayConfig) -> None:
        self.scene = Scene(config)
        self.series, self.instants = Series(), list[float]()
        self._metrics = Metrics(Books(TenantLabels((), 5), ["standard"]), lambda: self.scene.snapshot)

    def scrape(self) -> None:
        at_s = self.scene.now_ns / NS
        self.instants.append(at_s)
        for family in text_string_to_metric_families(self._metrics.text().decode()):
            for sample in family.samples:
                self.series.add(at_s, sample.name, sample.labels, sample.value)

    def fires(self, alert: str) -> list[float]:
        rule = RULES[alert]
        return firing(self.series, rule["expr"], seconds(rule.get("for", "0s")), self.instants)


def stuck(*, max_wait_s: float = 3_600) -> Scraped:
    """One call that never ends, and fifty behind it, for ten minutes."""
    scraped = Scraped(gateway(slots=1, tenant_slots=1, max_wait_s=max_wait_s, lease_s=7_200))
    for _ in range(51):
        scraped.scene.submit()
    for _ in range(600 // EVERY_S):
        scraped.scrape()
        scraped.scene.pass_time(EVERY_S * NS)
    return scraped


def busy() -> Scraped:
    """Five thousand at once, of which a hundred end every second: gone within a minute."""
    scraped = Scraped(gateway(slots=100, tenant_slots=100, max_wait_s=3_600))
    for _ in range(5_000):
        scraped.scene.submit()
    for second in range(600):
        if second % EVERY_S == 0:
            scraped.scrape()
        for request in list(scraped.scene.running.values())[:100]:
            scraped.scene.end(request)
        scraped.scene.pass_time(NS)
    assert scraped.instants[3] == 45.0
    return scraped


def test_fifty_that_do_not_move_are_an_incident_within_minutes() -> None:
    fires = stuck().fires(STUCK)
    assert fires
    assert 120 < fires[0] <= 210


def test_five_thousand_that_clear_within_a_minute_are_none() -> None:
    assert busy().fires(STUCK) == []
    assert busy().fires(SLOW) == []


def test_an_alert_on_depth_would_have_said_the_opposite() -> None:
    deep, still = busy(), stuck()
    assert firing(deep.series, DEEP, 0, deep.instants)
    assert firing(still.series, DEEP, 0, still.instants) == []


def test_a_class_that_gives_waiting_requests_up_is_measured_by_its_own_bound() -> None:
    """Nothing there ever gets older than 30 s, so that the absolute alert could not fire."""
    scraped = Scraped(gateway(slots=1, tenant_slots=1, max_wait_s=30, lease_s=7_200))
    for _ in range(600):
        if scraped.scene.now_ns % (EVERY_S * NS) == 0:
            scraped.scrape()
        scraped.scene.submit()
        scraped.scene.pass_time(NS)
    assert scraped.fires(STUCK) == []
    assert scraped.fires(SLOW)


COUNTS = {
    "AgentloadRefusing": ("refused", {"reason": "class_queue_full"}, 30),
    "AgentloadRetryStorm": ("retries", {"service_class": "standard", "attempt": "1"}, 60),
    "AgentloadDeadlineMisses": ("deadline_misses", {"service_class": "standard", "where": "queue"}, 10),
    "AgentloadProviderRefuses": ("provider_refusals", {}, 5),
    "AgentloadBudgetSpent": ("refused", {"reason": "budget_spent"}, 1),
    "AgentloadLeaseReclaimed": ("lease_reclaims", {"service_class": "standard"}, 1),
    "AgentloadJobLeaseReclaimed": ("job_lease_reclaims", {}, 1),
}


def fires_at(alert: str, name: str, labels: dict[str, str], per_step: float) -> list[float]:
    """100 requests in each step of 15 s, and so many of something from the tenth minute on."""
    series, instants = Series(), [float(at) for at in range(0, 1_800, EVERY_S)]
    counted = 0.0
    for step, at_s in enumerate(instants):
        counted += per_step if at_s >= 600 else 0
        series.add(at_s, "agentload_gateway_offered_total", {}, 100.0 * step)
        series.add(at_s, f"agentload_gateway_{name}_total", labels, counted)
    rule = RULES[alert]
    return firing(series, rule["expr"], seconds(rule.get("for", "0s")), instants)


@pytest.mark.parametrize("alert", COUNTS)
def test_counts_fire_when_they_rise_and_not_before(alert: str) -> None:
    fires = fires_at(alert, *COUNTS[alert])
    assert fires
    assert 600 <= fires[0] <= 1_200
    name, labels, _ = COUNTS[alert]
    assert fires_at(alert, name, labels, 0) == []


def test_a_tenant_that_spends_three_times_as_fast_is_seen_and_a_steady_one_is_not() -> None:
    series, instants = Series(), [float(at) for at in range(0, 8 * 3_600, 60)]
    for at_s in instants:
        series.add(at_s, "agentload_gateway_tenant_cost_total", {"tenant": "steady"}, at_s / 1_000)
        loop = max(0.0, at_s - 7 * 3_600) / 100
        series.add(at_s, "agentload_gateway_tenant_cost_total", {"tenant": "loop"}, at_s / 1_000 + loop)
    rule = RULES["AgentloadBudgetBurn"]
    last = instants[400:]
    fires = firing(series, rule["expr"], seconds(rule["for"]), last)
    assert fires
    assert fires[0] > 7 * 3_600
    found = series.at(rule["expr"], fires[0])
    assert isinstance(found, dict)
    assert [dict(labels) for labels in found] == [{"tenant": "loop"}]


def test_every_metric_that_a_rule_names_is_one_that_the_gateway_exports() -> None:
    named = set(re.findall(r"agentload_gateway_\w+", " ".join(rule["expr"] for rule in RULES.values())))
    assert named <= set(exported())


def exported() -> Iterator[str]:
    """From the code: some metrics appear only once something has happened."""
    folder = Path(str(files("agentload.gateway")))
    text = (folder / "metrics.py").read_text(encoding="utf-8")
    for name in re.findall(r'"([a-z_]+)"', text):
        yield f"agentload_gateway_{name}"
        yield f"agentload_gateway_{name}_total"


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
AGE = "agentload_gateway_queue_age_seconds"


def promtool(*arguments: str) -> None:
    checked = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def ages(scraped: Scraped) -> str:
    """What was scraped of the class's queue, as promtool wants it."""
    points = scraped.series.points
    series = [found for (name, labels), found in points.items() if name == AGE and labels >= CLASS]
    assert len(series) == 1
    return " ".join(f"{age:g}" for _, age in series[0])


CLASS = frozenset({("boundary", "class"), ("queue", "standard")})


def page(age_s: int) -> dict[str, Any]:
    """The alert as it must be sent."""
    annotations = RULES[STUCK]["annotations"]
    summary = f"class standard: the oldest has waited {age_s} s"
    labels = {"severity": "page", "boundary": "class", "queue": "standard"}
    return {"exp_labels": labels, "exp_annotations": annotations | {"summary": summary}}


@needs_promtool
def test_prometheus_itself_accepts_the_rules() -> None:
    promtool("check", "rules", str(RULES_FILE))


@needs_promtool
def test_prometheus_itself_says_the_same_of_the_golden_pair(tmp_path: Path) -> None:
    tests = [
        {
            "interval": f"{EVERY_S}s",
            "input_series": [
                {"series": AGE + '{boundary="class",queue="standard"}', "values": ages(scraped)}
            ],
            "alert_rule_test": [{"eval_time": "9m", "alertname": STUCK, "exp_alerts": expected}],
        }
        for scraped, expected in ((stuck(), [page(540)]), (busy(), []))
    ]
    file = tmp_path / "golden.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES_FILE)], "tests": tests}))
    promtool("test", "rules", str(file))
