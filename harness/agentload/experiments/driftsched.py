"""DriftSched's comparison of queueing policies, on slots instead of batches."""

from __future__ import annotations

from typing import ClassVar

from agentload.evidence.expectations import (
    Column,
    Expectation,
    Found,
    Measures,
    Shape,
    Value,
    at_least,
    at_most,
    divided,
)
from agentload.evidence.history import LogicalRequest, logical_requests
from agentload.experiments import Arm, Experiment, Source
from agentload.experiments._requests import quantile_s
from agentload.model import NS, Run

LOAD = """\
# The artefact's stress phase: 2,000 requests in 35 s, of four kinds, from three tiers that send alike. A
# token takes 22 ms, and 32 calls are served at once. Ten times that is wanted: everybody waits.
name: driftsched
about: Three tiers send the same mix of short and long requests, 2,000 in 35 s.
phases: [{name: stress, seconds: 35}]
drain_s: 600
provider: {slots: 32, latency: {first_token_ms: 22, first_token_cv: 0, inter_token_ms: 22}}
gateway:
  pools:
    shared:
      slots: 32
      tenant_slots: 32
      classes:
        premium: {nominal_share: 0.5, max_queue: 100000, tenant_max_queue: 100000, max_wait_s: 86400}
        standard: {nominal_share: 0.3, max_queue: 100000, tenant_max_queue: 100000, max_wait_s: 86400}
        batch: {nominal_share: 0.2, max_queue: 100000, tenant_max_queue: 100000, max_wait_s: 86400}
tenants:
  - name: premium
    arrivals: &third {kind: uniform, rate: 19.05}
    workload: &stress
      kind: mix
      parts:                                             # the model produces 70 % of what is declared
        - {share: 0.1, kind: chat, workflow: short-qa, max_tokens: 64, output_tokens: {mean: 45, cv: 0.3}}
        - {share: 0.2, kind: chat, workflow: summary, max_tokens: 256, output_tokens: {mean: 180, cv: 0.3}}
        - {share: 0.4, kind: chat, workflow: technical, max_tokens: 384, output_tokens: {mean: 270, cv: 0.3}}
        - {share: 0.3, kind: chat, workflow: report, max_tokens: 512, output_tokens: {mean: 360, cv: 0.3}}
    client: &once {kind: no-retry, timeout_s: 3600}
  - {name: standard, arrivals: *third, workload: *stress, client: *once}
  - {name: batch, arrivals: *third, workload: *stress, client: *once}
checks: [status-codes]
"""
TIERS = {"premium": 5, "standard": 3, "batch": 2}
CLASSES = tuple(f"tenants.{tier}.class={tier}" for tier in TIERS)
WEIGHTS = tuple(f"tenants.{tier}.weight={weight}" for tier, weight in TIERS.items())
REPORT_TOKENS = 512


class Driftsched(Experiment):
    """What does the order of the queue buy, whom, and at whose cost?

    The original serves batches of 32, whose latency is that of the longest member. It found the p99 better
    with shortest-job-first, too: that comes from batches of equals, and with slots it does not happen.
    """

    source: ClassVar[Source] = Source(
        paper="Palaniappan, DriftSched, 2026", arxiv="2606.02982", artefact="github.com/kpalania1/driftsched"
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column(name="p50_s", heading="p50", unit="s"),
        Column(name="p99_s", heading="p99", unit="s"),
        Column(name="premium_s", heading="premium mean", unit="s"),
        Column(name="batch_s", heading="batch mean", unit="s"),
        Column(name="report_p50_s", heading="longest jobs p50", unit="s"),
    )
    seeds: ClassVar[int] = 3

    def arms(self) -> tuple[Arm, ...]:
        return (
            _arm("fifo", "first come, first served"),
            _arm("sjf", "least estimated work first"),
            _arm("priority", "premium before standard before batch", *CLASSES),
            _arm("sfq", "weights 5, 3 and 2 (the original: a cycle of ten turns)", *WEIGHTS),
        )

    def measure(self, arm: Arm, run: Run) -> Measures:  # noqa: ARG002
        requests = logical_requests(run.records)
        reports = [one for one in requests if one.first.declared_output_tokens == REPORT_TOKENS]
        return {
            "p50_s": quantile_s(requests, 50),
            "p99_s": quantile_s(requests, 99),
            "premium_s": _mean_s(requests, "premium"),
            "batch_s": _mean_s(requests, "batch"),
            "report_p50_s": quantile_s(reports, 50),
        }

    def expect(self, found: Found) -> list[Expectation]:
        shape = Shape(self.columns, found)
        shape.ratio_most("p50_s", "sjf", "fifo", 0.8, "0.58; simulated with slots, 0.69")
        shape.ratio_least("p99_s", "sjf", "fifo", 0.97, "0.84 in batches; simulated with slots, 1.01")
        shape.ratio_least("report_p50_s", "sjf", "fifo", 1.25, "no fairness")
        shape.ratio_least("p50_s", "priority", "fifo", 0.85, "0.98–1.02", against="sjf")
        shape.ratio_least("p50_s", "sfq", "fifo", 0.85, "0.98–1.02", against="sjf")
        name = "batch mean ÷ premium mean"
        shape.inside(at_most, "sjf", name, _tiers, 2.5, "no fairness", against="priority")
        shape.inside(at_least, "priority", name, _tiers, 3, "strict priority", against="fifo")
        shape.inside(at_least, "sfq", name, _tiers, 1.5, "5 : 2", against="fifo")
        return shape.expectations


def _tiers(one: Measures) -> Value:
    return divided(one["batch_s"], one["premium_s"])


def _mean_s(requests: list[LogicalRequest], tenant: str) -> Value:
    latencies = [request.latency_ns / NS for request in requests if request.tenant == tenant]
    return sum(latencies) / len(latencies) if latencies else None


def _arm(policy: str, about: str, *settings: str) -> Arm:
    return Arm(name=policy, about=about, profile=LOAD, settings=(f"gateway.policy={policy}", *settings))
